package relay

// A toldQueue holds the ids that the log told and that no read has found yet,
// in the order of their commits.
type toldQueue struct {
	order []int64
	in    map[int64]struct{}
}

func (q *toldQueue) len() int { return len(q.in) }

func (q *toldQueue) has(id int64) bool {
	_, ok := q.in[id]
	return ok
}

func (q *toldQueue) push(ids ...int64) {
	if q.in == nil {
		q.in = make(map[int64]struct{})
	}
	for _, id := range ids {
		if !q.has(id) {
			q.in[id] = struct{}{}
			q.order = append(q.order, id)
		}
	}
	q.compact()
}

// unshift puts ids back in front of the others.
func (q *toldQueue) unshift(ids []int64) {
	rest := q.pop(len(q.order))
	q.order = nil
	q.push(ids...)
	q.push(rest...)
}

// pop takes at most n ids from the front.
func (q *toldQueue) pop(n int) []int64 {
	var ids []int64
	at := 0
	for ; at < len(q.order) && len(ids) < n; at++ {
		if id := q.order[at]; q.has(id) {
			delete(q.in, id)
			ids = append(ids, id)
		}
	}
	q.order = q.order[at:]
	return ids
}

func (q *toldQueue) remove(id int64) { delete(q.in, id) }

func (q *toldQueue) clear() { q.order, q.in = nil, nil }

// compact drops the places of ids that were removed.
func (q *toldQueue) compact() {
	if len(q.order) <= 2*len(q.in)+1024 {
		return
	}
	kept := make([]int64, 0, len(q.in))
	for _, id := range q.order {
		if q.has(id) {
			kept = append(kept, id)
		}
	}
	q.order = kept
}

// recentIDs remembers ids for a while: between one and two times its size.
type recentIDs struct {
	size     int
	now, old map[int64]struct{}
}

func (r *recentIDs) add(id int64) {
	if r.now == nil || len(r.now) >= r.size {
		r.old, r.now = r.now, make(map[int64]struct{})
	}
	r.now[id] = struct{}{}
}

func (r *recentIDs) has(id int64) bool {
	_, ok := r.now[id]
	if !ok {
		_, ok = r.old[id]
	}
	return ok
}

func (r *recentIDs) clear() { r.now, r.old = nil, nil }
