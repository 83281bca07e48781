package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/waybillhq/waybill/store"
)

// acting are the flags of every command that changes something.
type acting struct {
	Reason string `placeholder:"TEXT" help:"Why, for the audit. Required."`
	Actor  string `placeholder:"NAME" help:"Who, for the audit. Default: the user of the operating system."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// action checks the reason before anything is opened.
func (f *acting) action() (store.Action, error) {
	if strings.TrimSpace(f.Reason) == "" {
		return store.Action{}, usageError{errors.New("--reason is required: it is kept in the audit with your name")}
	}
	actor := f.Actor
	if actor == "" {
		actor = operator()
	}
	return store.Action{Actor: actor, Reason: f.Reason}, nil
}

// operator names the person behind this process as well as the system knows.
func operator() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if sudo := os.Getenv("SUDO_USER"); sudo != "" && sudo != name {
		name = sudo + " as " + name
	}
	if name == "" {
		name = fmt.Sprintf("uid %d", os.Getuid())
	}
	return name
}

// resultView is what became of one target.
type resultView struct {
	EventID string `json:"event_id"`
	Outcome string `json:"outcome"`
}

// resultsView is what an acting command prints.
type resultsView struct {
	Results  []resultView   `json:"results"`
	Outcomes map[string]int `json:"outcomes"`
}

// printResults prints what became of each target; done is the outcome that was
// wanted. Where another came about, the command ends with findings.
func (a *app) printResults(asJSON bool, results []store.Result, done string) error {
	view := resultsView{Results: make([]resultView, len(results)), Outcomes: make(map[string]int)}
	for i, r := range results {
		view.Results[i] = resultView(r)
		view.Outcomes[r.Outcome]++
	}
	var err error
	if asJSON {
		err = a.printJSON(view)
	} else {
		var b strings.Builder
		for _, r := range results {
			fmt.Fprintf(&b, "%s  %s\n", printable(r.EventID), r.Outcome)
		}
		b.WriteString(sum(view.Outcomes) + "\n")
		_, err = a.stdout.Write([]byte(b.String()))
	}
	if err == nil && view.Outcomes[done] < len(results) {
		return errFindings
	}
	return err
}

// sum writes counted outcomes: "3 retried, 1 gone".
func sum(outcomes map[string]int) string {
	if len(outcomes) == 0 {
		return "no event"
	}
	var parts []string
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		parts = append(parts, fmt.Sprintf("%d %s", outcomes[outcome], outcome))
	}
	return strings.Join(parts, ", ")
}
