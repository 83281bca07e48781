package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill/store"
	"github.com/waybillhq/waybill/store/storetest"
)

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }

// Behind a pooler in transaction mode there are no prepared statements. There are
// two ways to do without them, one tried with a pooler and the other on PostgreSQL
// 18; with them, the suite of the relay is run there.
func TestConformanceBehindAPooler(t *testing.T) {
	storetest.Run(t, pooled(t, "simple_protocol"))
}

func TestConformanceOnPostgres18(t *testing.T) {
	onPostgres18(t, func(t *testing.T) { storetest.Run(t, unprepared("exec")) })
}

func unprepared(mode string) storetest.Harness[pgx.Tx] {
	return storetest.Harness[pgx.Tx]{Open: func(t testing.TB, options storetest.Options) *storetest.Subject[pgx.Tx] {
		dsn := freshSchema
		switch {
		case options.Names.Schema != "":
			dsn = freshDatabase
		case !options.Bare && !options.Head && options.Names == (store.Names{}):
			dsn = func(t testing.TB, _ ...string) string { return usedSchema(t) }
		}
		return subject(openStore(t, dsn(t)+"&default_query_exec_mode="+mode, options), options)
	}}
}

// Random operations have the same answers as the store in memory.
func TestModel(t *testing.T) {
	steps := 400
	if testing.Short() {
		steps = 60
	}
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			storetest.RunModel(t, storetest.Memory(), harness(), seed, steps)
		})
	}
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness()) }
