package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybillhq/waybill/ops"
	"github.com/waybillhq/waybill/store"
)

type replayCmd struct {
	EventIDs []string `arg:"" optional:"" name:"event-id" help:"The events."`
	Topic    string   `placeholder:"TOPIC" help:"Events of this topic."`
	Type     string   `placeholder:"TYPE" help:"Events of this type."`
	Key      string   `placeholder:"KEY" help:"Events of this key or aggregate id."`
	From     string   `placeholder:"TIME" help:"Events inserted from this time on: 2026-03-01T12:00:00Z, 2026-03-01, or an age as 36h."`
	Until    string   `placeholder:"TIME" help:"Events inserted before this time."`
	Limit    int      `placeholder:"N" help:"The most events."`
	Rate     int      `default:"100" help:"Events queued in a second; -1 for no bound."`
	Apply    bool     `help:"Do it. Without this flag, only what would be done is told."`
	acting   `embed:""`
}

// Help has the examples.
func (replayCmd) Help() string {
	return `The events keep their ids: a consumer that has applied one counts a duplicate and does nothing, one that has not applies it.
Each event gets a line: queued, already pending, or gone (cleaned up or never there). Nothing changes without --apply.

Examples:

	waybill replay O-1001-v3
	waybill replay --key O-1001 --apply --reason "inventory was restored from a backup"
	waybill replay --topic orders --from 36h --until 12h --rate 500 --apply --reason "consumer was skipping"`
}

// replayView is what a replay prints.
type replayView struct {
	DryRun bool `json:"dry_run"`
	resultsView
}

func (c *replayCmd) Run(a *app) error {
	query := ops.ReplayQuery{EventIDs: c.EventIDs, Topic: c.Topic, Type: c.Type, Key: c.Key, Limit: c.Limit}
	conditions := c.Topic + c.Type + c.Key + c.From + c.Until
	switch {
	case len(c.EventIDs) == 0 && conditions == "":
		return usageError{errors.New("name events, or a condition: --topic, --type, --key, --from, --until")}
	case len(c.EventIDs) > 0 && conditions != "":
		return usageError{errors.New("name either events or conditions")}
	case c.Rate == 0 || c.Rate < -1:
		return usageError{fmt.Errorf("--rate=%d: events in a second, or -1 for no bound", c.Rate)}
	}
	var action store.Action
	var err error
	if c.Apply {
		if action, err = c.action(); err != nil {
			return err
		}
	}
	if query.From, err = moment("--from", c.From); err != nil {
		return err
	}
	if query.Until, err = moment("--until", c.Until); err != nil {
		return err
	}
	_, st, err := a.open()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	view := replayView{resultsView: resultsView{Results: []resultView{}}}
	result, err := ops.Replay(a.ctx, st, action, query, &ops.ReplayConfig{Apply: c.Apply, Rate: c.Rate, Each: func(r store.Result) {
		if c.JSON {
			view.Results = append(view.Results, resultView(r))
		} else {
			_ = a.print(fmt.Sprintf("%s  %s\n", printable(r.EventID), r.Outcome)) // an error shows with the sum
		}
	}})
	view.DryRun, view.Outcomes = result.DryRun, result.Outcomes
	if c.JSON {
		return errors.Join(err, a.printJSON(view))
	}
	end := sum(result.Outcomes)
	if result.DryRun {
		end += " (nothing was changed: add --apply --reason TEXT)"
	}
	return errors.Join(err, a.print(end+"\n"))
}

// moment reads a time, a day in UTC, or an age.
func moment(flag, value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if at, err := time.Parse(layout, value); err == nil {
			return at, nil
		}
	}
	if age, err := time.ParseDuration(strings.TrimPrefix(value, "-")); err == nil {
		return now().Add(-age), nil
	}
	return time.Time{}, usageError{fmt.Errorf("%s=%s: want a time like 2026-03-01T12:00:00Z, a day like 2026-03-01, or an age like 36h", flag, value)}
}
