package store

import (
	"context"
	"time"
)

// DeadLetters follows which DEAD events were sent to a topic of dead letters.
// The held event is the truth, the record in the topic its copy.
type DeadLetters interface {
	// UnsentDead returns events that are DEAD, at least for age, and whose dead
	// letter was neither sent nor given up, by Seq, only greater than after, at most
	// limit.
	UnsentDead(ctx context.Context, group string, age time.Duration, after int64, limit int) ([]Held, error)
	// NoteDeadLetter notes that the dead letter of a failure is in its topic, or,
	// with a note, why it never will be. It changes nothing where the event is no
	// longer DEAD, or has been DEAD anew since held was read: LastFailedAt tells.
	NoteDeadLetter(ctx context.Context, held Held, note string) error
}
