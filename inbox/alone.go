package inbox

import "context"

// alone lets handlers run side by side, or one of them all alone: what is
// suspected of taking the process down must not take an innocent neighbour's
// mark with it. It waits on channels only.
type alone struct {
	seats chan struct{}
	turn  chan struct{} // held by the one that gathers all seats
}

func newAlone(seats int) *alone {
	return &alone{seats: make(chan struct{}, seats), turn: make(chan struct{}, 1)}
}

// share waits for a seat. The result gives it back; it is nil when ctx ended.
func (a *alone) share(ctx context.Context) (leave func()) {
	// Whoever gathers all seats goes first.
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-a.turn }()
	select {
	case a.seats <- struct{}{}:
		return func() { <-a.seats }
	case <-ctx.Done():
		return nil
	}
}

// exclude waits until no one else has a seat.
func (a *alone) exclude(ctx context.Context) (leave func()) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	free := func(n int) {
		for range n {
			<-a.seats
		}
	}
	for taken := range cap(a.seats) {
		select {
		case a.seats <- struct{}{}:
		case <-ctx.Done():
			free(taken)
			<-a.turn
			return nil
		}
	}
	return func() {
		free(cap(a.seats))
		<-a.turn
	}
}
