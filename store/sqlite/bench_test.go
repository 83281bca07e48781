package sqlite_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("events=%d", size), func(b *testing.B) {
			st := open(b, nil)
			events := make([]waybill.Event, size)
			for b.Loop() {
				for i := range events {
					events[i] = event(waybill.NewID(), waybill.NewID())
				}
				appendEvents(b, st, events...)
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkIdleFetch(b *testing.B) {
	st := open(b, nil)
	for b.Loop() {
		if rows := hot(b, st); len(rows) != 0 {
			b.Fatal("the queue is not empty")
		}
	}
}

func BenchmarkFetchAndSettle(b *testing.B) {
	const batch = 500
	for _, forget := range []bool{false, true} {
		b.Run(fmt.Sprintf("forget=%t", forget), func(b *testing.B) {
			st := open(b, nil)
			guard := claimAll(b, st, "relay")
			for b.Loop() {
				b.StopTimer()
				events := make([]waybill.Event, batch)
				for i := range events {
					events[i] = event(waybill.NewID(), waybill.NewID())
				}
				appendEvents(b, st, events...)
				b.StartTimer()
				rows := hot(b, st)
				changes := store.Changes{Forget: forget}
				for i := range rows {
					changes.Settled = append(changes.Settled, settled(&rows[i]))
				}
				if err := st.Apply(b.Context(), guard, changes); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkConsume(b *testing.B) {
	st := open(b, nil)
	inTx(b, st, func(tx *sql.Tx) {
		if _, err := tx.ExecContext(b.Context(), `CREATE TABLE total (id INTEGER PRIMARY KEY, n INTEGER)`); err != nil {
			b.Fatal(err)
		}
	})
	const batch = 100
	for b.Loop() {
		tx, err := st.BeginInbox(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		for range batch {
			if err := tx.Savepoint(b.Context()); err != nil {
				b.Fatal(err)
			}
			if _, err := tx.MarkConsumed(b.Context(), store.Consumed{Group: "g", Event: event(waybill.NewID(), "k"), Outcome: store.Applied, Topic: "orders"}); err != nil {
				b.Fatal(err)
			}
			if _, err := tx.Handle().ExecContext(b.Context(), `INSERT INTO total (id, n) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = n + 1`); err != nil {
				b.Fatal(err)
			}
			if err := tx.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}
