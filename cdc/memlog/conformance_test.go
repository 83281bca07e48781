package memlog_test

import (
	"sync/atomic"
	"testing"

	"github.com/waybillhq/waybill/cdc"
	"github.com/waybillhq/waybill/cdc/cdctest"
	"github.com/waybillhq/waybill/cdc/memlog"
)

func TestConformance(t *testing.T) {
	cdctest.Run(t, cdctest.Harness{Open: openLog})
}

func openLog(testing.TB) cdctest.Database {
	log := new(memlog.Log)
	var last atomic.Int64
	return cdctest.Database{
		Source:    func(testing.TB) cdc.Source { return log.Source("memory") },
		Begin:     func(testing.TB) cdctest.Tx { return &tx{log: log, last: &last} },
		Truncate:  func(testing.TB) { log.Truncate() },
		Unrelated: func(testing.TB) {},
		Break:     func(testing.TB) { log.Break() },
		Lose:      func(testing.TB) { log.Lose() },
		LostState: cdc.WALRemoved,
	}
}

type tx struct {
	log   *memlog.Log
	last  *atomic.Int64
	ids   []int64
	saved int
}

func (x *tx) Insert(_ testing.TB, n int) []int64 {
	from := len(x.ids)
	for range n {
		x.ids = append(x.ids, x.last.Add(1))
	}
	return append([]int64(nil), x.ids[from:]...)
}

func (x *tx) Savepoint(testing.TB)  { x.saved = len(x.ids) }
func (x *tx) RollbackTo(testing.TB) { x.ids = x.ids[:x.saved] }
func (x *tx) Commit(testing.TB)     { x.log.Commit(x.ids...) }
func (x *tx) Rollback(testing.TB)   {}
