package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func TestOwnTransactionsAreRetriedAsVictimsOnly(t *testing.T) {
	for _, test := range []struct {
		name  string
		code  string
		fails int
		want  int // calls
	}{
		{"success", codeDeadlock, 0, 1},
		{"deadlock", codeDeadlock, 2, 3},
		{"serialization", codeSerializationFailed, 1, 2},
		{"for ever", codeDeadlock, 1000, retries + 1},
		{"another fault", codeUniqueViolation, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			calls := 0
			err := retry(t.Context(), func() error {
				if calls++; calls <= test.fails {
					return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: test.code})
				}
				return nil
			})
			if calls != test.want {
				t.Errorf("got %d calls, want %d", calls, test.want)
			}
			if wantError := test.fails >= test.want; (err != nil) != wantError {
				t.Errorf("got %v, want an error: %t", err, wantError)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	calls := 0
	_ = retry(ctx, func() error {
		calls++
		return &pgconn.PgError{Code: codeDeadlock}
	})
	if calls != 1 {
		t.Errorf("got %d calls after the context had ended, want 1", calls)
	}
}

func TestTextsOfAnyBytesSurvive(t *testing.T) {
	seen := make(map[string]string)
	for _, text := range []string{"", "k", "schlüssel", `\x`, `\x6b`, "\x00", "a\x00b", "\xff", "\xfe", `\\x`, `\xzz`} {
		encoded := encodeText(text)
		if got := decodeText(encoded); got != text {
			t.Errorf("%q came back as %q", text, got)
		}
		if other, taken := seen[encoded]; taken {
			t.Errorf("%q and %q are both kept as %q", text, other, encoded)
		}
		seen[encoded] = text
	}
}

func TestNamesThatCannotBeUsedAreRefused(t *testing.T) {
	long := make([]byte, maxNameLen+1)
	for i := range long {
		long[i] = 'x'
	}
	for name, n := range map[string]store.Names{
		"too long":  {Event: string(long)},
		"zero byte": {Schema: "a\x00b"},
		"same":      {Event: "t", Pending: "t"},
		"quote":     {Lease: "a$waybill$b"},
	} {
		var named *waybill.Error
		if _, err := newNames(n); !errors.As(err, &named) || named.Hint == "" {
			t.Errorf("%s: got %v, want a refusal with a hint", name, err)
		}
	}
}
