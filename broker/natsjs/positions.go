package natsjs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// positions are the committed positions of one group, in the shared bucket.
type positions struct {
	bucket jetstream.KeyValue
	group  string

	mu    sync.Mutex
	known map[string]stored // by the bucket's key
}

// stored is an entry of the bucket: the last settled sequence number, and when
// the stream was made that it belongs to.
type stored struct {
	settled  int64
	made     int64 // nanoseconds of the Unix time
	revision uint64
}

func (s stored) String() string { return fmt.Sprintf("%d %d", s.settled, s.made) }

func parseStored(entry jetstream.KeyValueEntry) (stored, error) {
	settled, made, _ := strings.Cut(string(entry.Value()), " ")
	at, err1 := strconv.ParseInt(settled, 10, 64)
	of, err2 := strconv.ParseInt(made, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return stored{}, fmt.Errorf("position %s is illegible: %w", entry.Key(), err)
	}
	return stored{settled: at, made: of, revision: entry.Revision()}, nil
}

// openPositions opens the bucket, making it where it is missing.
func (b *Broker) openPositions(ctx context.Context, group string) (*positions, error) {
	ctx, done := b.ask(ctx, "")
	defer done()
	bucket, err := b.js.KeyValue(ctx, b.config.positionsBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket:      b.config.positionsBucket(),
			Description: "positions of waybill's consumer groups",
			History:     1,
			Storage:     jetstream.FileStorage,
			Replicas:    b.config.Replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			bucket, err = b.js.KeyValue(ctx, b.config.positionsBucket())
		}
	}
	if err != nil {
		return nil, verdict(ctx, err)
	}
	return &positions{bucket: bucket, group: group, known: make(map[string]stored)}, nil
}

// read returns what is committed; the zero value when nothing is.
func (p *positions) read(ctx context.Context, topic string, id int32) (stored, error) {
	key := positionKey(p.group, topic, id)
	entry, err := p.bucket.Get(ctx, key)
	var found stored
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return found, err
	default:
		if found, err = parseStored(entry); err != nil {
			return found, err
		}
	}
	p.remember(key, found)
	return found, nil
}

// raise commits a position unless a greater one of the same stream is there.
func (p *positions) raise(ctx context.Context, t *topic, id int32, settled int64) error {
	key := positionKey(p.group, t.name, id)
	made := t.made.UnixNano()
	p.mu.Lock()
	have := p.known[key]
	p.mu.Unlock()
	for {
		if have.revision != 0 && have.made == made && have.settled >= settled {
			p.remember(key, have)
			return nil
		}
		want := stored{settled: settled, made: made}
		var err error
		if have.revision == 0 {
			want.revision, err = p.bucket.Create(ctx, key, []byte(want.String()))
		} else {
			want.revision, err = p.bucket.Update(ctx, key, []byte(want.String()), have.revision)
		}
		if err == nil {
			p.remember(key, want)
			return nil
		}
		if !changedMeanwhile(err) {
			return err
		}
		// Another reader of the group, or an earlier attempt of ours whose answer
		// was lost, has written: compare with that.
		if have, err = p.read(ctx, t.name, id); err != nil {
			return err
		}
	}
}

func (p *positions) remember(key string, s stored) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[key] = s
}

func changedMeanwhile(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
