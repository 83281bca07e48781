package cdc_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

// scripted gives n bytes in each read, and notes when reads begin.
type scripted struct {
	net.Conn
	n     int
	began []time.Time
}

func (c *scripted) Read(to []byte) (int, error) {
	c.began = append(c.began, time.Now())
	return min(c.n, len(to)), nil
}

func TestOnlyAnEmptiedConnectionIsLeftAlone(t *testing.T) {
	for _, one := range []struct {
		name       string
		read, room int
		gathers    bool
		waits      time.Duration
	}{
		{name: "a trickle", read: 300, room: 8 << 10, gathers: true, waits: 4 * time.Millisecond},
		{name: "before the log comes", read: 300, room: 8 << 10},
		{name: "more is there than was asked for", read: 8 << 10, room: 517, gathers: true},
		{name: "more than a trickle", read: 40 << 10, room: 64 << 10, gathers: true},
	} {
		t.Run(one.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				under := &scripted{n: one.read}
				c := &cdc.GatherConn{Conn: under}
				if one.gathers {
					c.Gather()
				}
				buffer, opened := make([]byte, one.room), time.Now()
				for range 3 {
					if _, err := c.Read(buffer); err != nil {
						t.Fatal(err)
					}
				}
				if waited := under.began[0].Sub(opened); waited != 0 {
					t.Errorf("the first read waited %v", waited)
				}
				for i := range 2 {
					if waited := under.began[i+1].Sub(under.began[i]); waited != one.waits {
						t.Errorf("read %d waited %v, want %v", i+1, waited, one.waits)
					}
				}
			})
		})
	}
}
