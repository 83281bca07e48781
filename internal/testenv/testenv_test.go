package testenv

import (
	"runtime"
	"testing"
)

// outcome records which way a lookup ended.
type outcome struct {
	testing.TB
	skipped, failed bool
}

func (o *outcome) Helper() {}

func (o *outcome) Skipf(string, ...any) {
	o.skipped = true
	runtime.Goexit()
}

func (o *outcome) Fatalf(string, ...any) {
	o.failed = true
	runtime.Goexit()
}

func TestMissingServerSkipsUnlessRequired(t *testing.T) {
	for _, test := range []struct {
		name, dsn, ci, required string
		skipped, failed         bool
		want                    string
	}{
		{name: "set", dsn: "postgres://x", ci: "true", required: "1", want: "postgres://x"},
		{name: "unset at home", skipped: true},
		{name: "unset in ci", ci: "true", failed: true},
		{name: "unset but required", required: "1", failed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("WAYBILL_TEST_POSTGRES15", test.dsn)
			t.Setenv("CI", test.ci)
			t.Setenv(EnvRequired, test.required)
			var o outcome
			var got string
			done := make(chan struct{})
			go func() {
				defer close(done)
				got = Postgres15(&o)
			}()
			<-done
			if got != test.want || o.skipped != test.skipped || o.failed != test.failed {
				t.Errorf("got %q, skipped %v, failed %v; want %q, %v, %v", got, o.skipped, o.failed, test.want, test.skipped, test.failed)
			}
		})
	}
}
