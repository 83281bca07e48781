package lab

import (
	"context"
	"errors"
	"strings"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/reconcile"
)

// Pairs are the loans compared with three arms, and with any two of them.
type Pairs struct {
	Variants []Variant `json:"variants"` // all three first
	Loans    []Planted `json:"loans"`    // what was done to each, and what each variant says
}

// Variant is a comparison of some of the arms.
type Variant struct {
	Arms   []string          `json:"arms"`   // write, log, read
	Report *reconcile.Report `json:"report"` // of this comparison
	// Missed are the keys of which this variant says nothing, or something else
	// than the three arms do.
	Missed []string `json:"missed"`
}

// Planted is one loan.
type Planted struct {
	Key      string   `json:"key"`
	Fault    string   `json:"fault"`    // what was done to it
	Verdicts []string `json:"verdicts"` // in the order of the variants; empty: nothing
	Correct  []bool   `json:"correct"`  // in the order of the variants: as the three arms say
}

var planted = []Planted{
	{Key: "L-1001", Fault: "nothing"},
	{Key: "L-1002", Fault: "the second event was never written"},
	{Key: "L-1003", Fault: "the row was deleted by hand"},
	{Key: "L-1004", Fault: "the row was edited by hand"},
	{Key: "L-1005", Fault: "nothing: its event is on its way"},
	{Key: "L-1006", Fault: "the read model was edited by hand"},
}

// ComparePairs builds the loans and compares them in each way.
func ComparePairs(ctx context.Context, options *Options) (found *Pairs, err error) {
	l, err := build(ctx, options)
	if err != nil {
		return nil, &waybill.Error{Op: "lab", Key: "pairs", Err: err}
	}
	defer func() { err = errors.Join(err, l.close(ctx)) }()
	found = &Pairs{Loans: append([]Planted(nil), planted...)}
	for _, arms := range [][]string{Arms, {"write", "log"}, {"log", "read"}, {"write", "read"}} {
		engine, err := l.engine(arms)
		if err != nil {
			return nil, err
		}
		report, err := engine.Run(ctx)
		if err != nil {
			return nil, &waybill.Error{Op: "lab", Key: strings.Join(arms, ","), Err: err}
		}
		found.add(Variant{Arms: arms, Report: report, Missed: []string{}})
	}
	return found, nil
}

func (p *Pairs) add(v Variant) {
	for i := range p.Loans {
		loan := &p.Loans[i]
		verdict := ""
		for _, f := range v.Report.Findings {
			if f.Key == loan.Key {
				verdict = string(f.Class)
			}
		}
		loan.Verdicts = append(loan.Verdicts, verdict)
		correct := verdict == loan.Verdicts[0]
		loan.Correct = append(loan.Correct, correct)
		if !correct {
			v.Missed = append(v.Missed, loan.Key)
		}
	}
	p.Variants = append(p.Variants, v)
}
