package mybinlog_test

import (
	"crypto/rand"
	"testing"

	driver "github.com/go-sql-driver/mysql"
)

// A compressed transaction that takes more than one of the server's packets is
// read where it stands in the log, with and without encryption, and so is what
// comes before and after it.
func TestLargeCompressedTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		if s.isMaria {
			t.Skip("compresses event by event")
		}
		d := s.database(t)
		d.compress(t)
		d = d.again(t)
		f := follow(t, d.source(t), "")
		f.toMark(t)
		begin := f.after
		want := d.commit(t, 2)
		x := d.begin(t)
		data := make([]byte, 1<<20) // that nothing makes smaller
		for range 17 {
			_, _ = rand.Read(data)
			want = append(want, x.Insert(t, 3)...)
			if _, err := x.conn.ExecContext(t.Context(), "UPDATE outbox_event SET payload = ? WHERE id = ?", data, want[len(want)-1]); err != nil {
				t.Fatal(err)
			}
		}
		x.Commit(t)
		want = append(want, d.commit(t, 1)...)
		f.toMark(t)
		f.want(t, want, 0)
		f.close(t)

		settings, err := driver.ParseDSN(d.dsn)
		if err != nil {
			t.Fatal(err)
		}
		settings.TLSConfig = "skip-verify"
		f = follow(t, d.sourceWith(t, settings.FormatDSN(), nil), begin)
		f.toMark(t)
		f.want(t, want, 0)
	})
}
