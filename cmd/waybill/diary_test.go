package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/waybillhq/waybill/relay"
)

func TestManyDeadEventsDoNotFloodTheLog(t *testing.T) {
	var out bytes.Buffer
	d := newDiary(slog.New(slog.NewTextHandler(&out, nil)))
	for round := range 2 {
		for i := range 1000 {
			d.refused(relay.FailedInfo{EventInfo: relay.EventInfo{EventID: fmt.Sprintf("e%d-%d", round, i)}, Dead: true, Err: errors.New("refused")})
		}
		d.sum()
	}
	if got, want := strings.Count(out.String(), "\n"), 2*(deadLines+1); got != want {
		t.Errorf("got %d lines, want %d", got, want)
	}
	if !strings.Contains(out.String(), fmt.Sprintf("events=%d", 1000-deadLines)) {
		t.Errorf("the log does not say how many it did not name:\n%s", out.String())
	}
}
