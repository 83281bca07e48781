package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybillhq/waybill/internal/fault"
)

// swap lets writers wait, brings over the rest, and puts the copy in the place
// of the read model. Where writers cannot be made to wait in short time it lets
// go of them and tries again.
func (s *shadow) swap(ctx context.Context) error {
	var last error
	for range shadowLocks {
		done, err := s.swapOnce(ctx)
		if done {
			return nil
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		last = err
		if err := s.clock.Wait(ctx, time.Second); err != nil {
			return err
		}
		if err := s.follow(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("writers could not be made to wait for a moment: %w", last)
}

func (s *shadow) swapOnce(ctx context.Context) (done bool, err error) {
	conn, err := s.bases.read.DB.Conn(ctx)
	if err != nil {
		return false, err
	}
	s.on = conn
	var keys []Key
	defer func() {
		defer func() {
			s.on = s.bases.read.DB
			_ = conn.Close()
		}()
		if done {
			return
		}
		_ = s.run(context.WithoutCancel(ctx), "unlock", s.unlock())
		for _, key := range keys { // what was brought may have been undone
			delete(s.marks, key.order)
		}
	}()
	if err := s.run(ctx, "lock", s.lock()); err != nil {
		return false, err
	}
	if keys, err = s.changedKeys(ctx); err != nil || len(keys) > shadowRest {
		return false, err
	}
	if err := s.bringAgain(ctx, keys); err != nil {
		return false, err
	}
	if s.bases.read.Dialect == MariaDB {
		err = s.exchangeFromOutside(ctx)
	} else if exchange, planned := s.exchange(ctx); planned == nil {
		err = s.run(ctx, "swap", exchange)
	} else {
		err = planned
	}
	if err != nil {
		return false, err
	}
	return true, s.run(context.WithoutCancel(ctx), "end", s.cleanUp())
}

// exchangeFromOutside renames by a second connection, since MariaDB lets none
// that holds tables do so. The renaming waits for the first one to let go, and
// is then served before any writer that waits as well. Were the first connection
// lost before the other one waits, writers would come first, and the copy would
// lack their work: so a table is in the way of the renaming, and the first one
// removes it last.
func (s *shadow) exchangeFromOutside(ctx context.Context) (err error) {
	outside, err := s.bases.read.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outside.Close()) }()
	var id int64
	if err := outside.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, renameLimit)
	defer cancel()
	renamed := make(chan error, 1)
	go func() {
		_, err := outside.ExecContext(limited, s.rename())
		renamed <- err
	}()
	if err := s.awaitWaiting(limited, id); err != nil {
		cancel()
		return errors.Join(err, <-renamed)
	}
	fault.Point("reconcile-shadow-waiting")
	if err := s.run(ctx, "swap", []string{"COMMIT", "DROP TABLE " + s.oldName(), "UNLOCK TABLES"}); err != nil {
		cancel()
		return errors.Join(err, <-renamed)
	}
	return <-renamed
}

// renameLimit is how long writers may have to wait for a renaming.
const renameLimit = 5 * time.Second

const waitingSQL = `
SELECT COUNT(*)
FROM information_schema.processlist
WHERE id = %s AND state LIKE 'Waiting for table%%'`

// awaitWaiting returns once a connection waits for a table.
func (s *shadow) awaitWaiting(ctx context.Context, id int64) error {
	for {
		waiting := int64(0)
		text := &statement{dialect: MariaDB}
		err := scan(ctx, s.on, text.add(waitingSQL, text.bind(id)), func(_ []column, got []any) (err error) {
			waiting, err = versionOf(got[0])
			return err
		})
		if err != nil || waiting > 0 {
			return err
		}
		if err := s.clock.Wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
