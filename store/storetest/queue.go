package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/store"
)

func queueCases[TX any]() []testCase[TX] {
	return []testCase[TX]{
		{"a walk takes the lanes in the order given, each by id", walkOrder[TX]},
		{"a walk pages through everything once", walkPages[TX]},
		{"a walk takes no more of a lane than its limit", walkSlices[TX]},
		{"a walk of all lanes together goes by id", walkTogether[TX]},
		{"a walk passes over excluded topics", walkExcluded[TX]},
		{"a walk finds what load shows", walkLoad[TX]},
		{"load returns rows by id, whatever their state", loadRows[TX]},
		{"load stops after the row that passes the bytes", loadBytes[TX]},
		{"parked rows are not hot", fetchParked[TX]},
		{"fetch key returns one key, hot or not", fetchKeyAll[TX]},
		{"fetch key keeps its bounds", fetchKeyBounds[TX]},
		{"fetch due returns what is due, earliest first", fetchDue[TX]},
		{"held keys are named once each", heldKeys[TX]},
		{"the frontier does not close over an open transaction", frontierOpen[TX]},
		{"the frontier closes", frontierCloses[TX]},
	}
}

// spread appends n events over several keys and returns their rows by id.
func (s *suite[TX]) spread(t testing.TB, n int) []*store.Row {
	t.Helper()
	var events []waybill.Event
	for i := range n {
		events = append(events, s.event(fmt.Sprintf("key-%d", i%23)))
	}
	s.append(t, events...)
	return s.hot(t)
}

func (s *suite[TX]) walk(t testing.TB, request store.WalkRequest) store.WalkResult {
	t.Helper()
	result, err := s.Outbox.Walk(t.Context(), request)
	if err != nil {
		t.Fatalf("walk: %v", err)
	}
	return result
}

func (s *suite[TX]) load(t testing.TB, ids []int64, maxBytes int) store.FetchResult {
	t.Helper()
	result, err := s.Outbox.Load(t.Context(), ids, maxBytes)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return result
}

func walkOrder[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	all := s.spread(t, 120)
	cursors := allCursors()
	slices.Reverse(cursors)
	result := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: 1000})
	if len(result.Refs) != len(all) || result.Full {
		t.Errorf("got %d rows, full %t, want %d, not full", len(result.Refs), result.Full, len(all))
	}
	for i := 1; i < len(result.Refs); i++ {
		a, b := result.Refs[i-1], result.Refs[i]
		if result.Through > 0 { // the lanes were walked together
			if a.ID >= b.ID {
				t.Fatalf("row %d comes before row %d", a.ID, b.ID)
			}
			continue
		}
		if a.Lane < b.Lane || a.Lane == b.Lane && a.ID >= b.ID {
			t.Fatalf("row %d of lane %d comes before row %d of lane %d", a.ID, a.Lane, b.ID, b.Lane)
		}
	}
	lane := all[0].Lane
	for _, ref := range s.walk(t, store.WalkRequest{Lanes: []store.LaneCursor{{Lane: lane}}, Limit: 1000}).Refs {
		if ref.Lane != lane {
			t.Errorf("asked for lane %d, got a row of lane %d", lane, ref.Lane)
		}
	}
	if none := s.walk(t, store.WalkRequest{Limit: 1000}); len(none.Refs) != 0 || none.Full {
		t.Errorf("a walk of no lanes: got %d rows, full %t", len(none.Refs), none.Full)
	}
}

func walkPages[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	all := s.spread(t, 100)
	cursors := allCursors()
	seen := make(map[int64]bool)
	for page := 0; ; page++ {
		result := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: 7})
		if len(result.Refs) > 7 {
			t.Fatalf("got %d rows, limit 7", len(result.Refs))
		}
		if len(result.Refs) < 7 && result.Full {
			t.Error("a page under its limit says that it is full")
		}
		for _, ref := range result.Refs {
			if seen[ref.ID] {
				t.Fatalf("row %d came twice", ref.ID)
			}
			seen[ref.ID] = true
			cursors[ref.Lane].After = ref.ID
		}
		if !result.Full {
			break
		}
		if page > len(all) {
			t.Fatal("the pages do not end")
		}
	}
	if len(seen) != len(all) {
		t.Errorf("the pages have %d rows, want %d", len(seen), len(all))
	}
}

// fewRows is a limit with which any store walks lane by lane: to walk them
// together pays only for more.
const fewRows = 99

// A lane that is cut by its own limit does not make the answer full, and does
// not keep the lanes behind it out.
func walkSlices[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	all := s.spread(t, 200)
	cursors, want := allCursors(), make(map[int][]int64)
	for i := range cursors {
		cursors[i].Limit = 1 + i%3
	}
	cursors[all[0].Lane].Limit = 0
	for _, row := range all {
		if c := cursors[row.Lane]; c.Limit == 0 || len(want[row.Lane]) < c.Limit {
			want[row.Lane] = append(want[row.Lane], row.ID)
		}
	}
	if together := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: 1000}); together.Through > 0 && (len(together.Refs) != len(all) || together.Full) {
		t.Errorf("together: got %d rows, full %t, want all %d, not full", len(together.Refs), together.Full, len(all))
	}
	result := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: fewRows})
	got := make(map[int][]int64)
	for _, ref := range result.Refs {
		got[ref.Lane] = append(got[ref.Lane], ref.ID)
	}
	if !maps.EqualFunc(got, want, slices.Equal) || result.Full {
		t.Errorf("got %v, full %t, want %v, not full", got, result.Full, want)
	}
	if both := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: 2}); len(both.Refs) != 2 || !both.Full {
		t.Errorf("with both limits: got %d rows, full %t, want 2, full", len(both.Refs), both.Full)
	}
}

// Lanes that are walked together give all their rows up to the last id of the
// answer, whatever is between, and go on from there.
func walkTogether[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var all []*store.Row
	for _, row := range s.spread(t, 400) {
		if row.Lane%8 != 3 {
			all = append(all, row)
		}
	}
	cursors := slices.DeleteFunc(allCursors(), func(c store.LaneCursor) bool { return c.Lane%8 == 3 })
	late := all[len(all)/3] // the rows of its lane before it are known
	for i := range cursors {
		if cursors[i].Lane == late.Lane {
			cursors[i].After = late.ID
		}
	}
	all = slices.DeleteFunc(all, func(row *store.Row) bool { return row.Lane == late.Lane && row.ID <= late.ID })
	first := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: 120})
	if first.Through == 0 {
		t.Skip("this store walks lane by lane")
	}
	if first.Full || first.Through == math.MaxInt64 {
		t.Fatalf("the first of several answers is at the end: full %t, through %d", first.Full, first.Through)
	}
	var want []int64
	for _, row := range all {
		if row.ID <= first.Through {
			want = append(want, row.ID)
		}
	}
	if got := idsOf(first.Refs); !slices.Equal(got, want) {
		t.Errorf("through %d: got %v, want %v", first.Through, got, want)
	}
	for i := range cursors {
		cursors[i].After = max(cursors[i].After, first.Through)
	}
	rest := s.walk(t, store.WalkRequest{Lanes: cursors, Limit: 1000})
	if got := len(want) + len(rest.Refs); got != len(all) || rest.Through != math.MaxInt64 {
		t.Errorf("got %d rows in two answers, the second through %d; want %d rows, through the end", got, rest.Through, len(all))
	}
}

func idsOf(refs []store.Ref) []int64 {
	ids := make([]int64, len(refs))
	for i, ref := range refs {
		ids[i] = ref.ID
	}
	return ids
}

func walkExcluded[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	var denied, allowed []waybill.Event
	for i := range 30 {
		e := s.event("same key")
		if i%3 != 0 {
			e.Topic = "denied"
			denied = append(denied, e)
		} else {
			allowed = append(allowed, e)
		}
		s.append(t, e)
	}
	hash := s.row(t, denied[0].ID).TopicHash
	for _, limit := range []int{0, len(allowed)} {
		cursors := allCursors()
		for i := range cursors {
			cursors[i].Limit = limit
		}
		result := s.walk(t, store.WalkRequest{Lanes: cursors, ExcludeTopics: []int64{hash, hash + 1}, Limit: len(allowed)})
		if len(result.Refs) != len(allowed) {
			t.Errorf("got %d rows, want %d: the excluded must not use up a limit", len(result.Refs), len(allowed))
		}
		for _, ref := range result.Refs {
			if ref.TopicHash == hash {
				t.Fatal("an excluded topic was found")
			}
		}
	}
}

func walkLoad[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	s.spread(t, 60)
	result := s.walk(t, store.WalkRequest{Lanes: allCursors()})
	for _, ref := range result.Refs {
		rows := s.load(t, []int64{ref.ID}, 0).Rows
		if len(rows) != 1 {
			t.Fatalf("row %d: loaded %d rows", ref.ID, len(rows))
		}
		if row := rows[0]; ref != (store.Ref{ID: row.ID, Lane: row.Lane, KeyHash: row.KeyHash, TopicHash: row.TopicHash}) {
			t.Errorf("the walk found %+v, load shows %+v", ref, row)
		}
	}
}

// loadRows asks for ids that lie close together and for ids that do not, which a
// store may look up in different ways.
func loadRows[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	all := s.spread(t, 90)
	guard := s.own(t)
	s.apply(t, guard, failed(all[1], true, 0, "never"))
	s.apply(t, guard, failed(all[2], false, time.Hour, "later"))
	s.apply(t, guard, store.Changes{Parked: []int64{all[3].ID}})
	s.apply(t, guard, settled(all[4]))
	for _, c := range []struct {
		name string
		pick func(i int) bool
		gone int
	}{
		{"all", func(int) bool { return true }, 1},
		{"every other", func(i int) bool { return i%2 == 0 }, 1},
		{"few and far between", func(i int) bool { return i%40 == 1 }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ids []int64
			for i, row := range all {
				if c.pick(i) {
					ids = append(ids, row.ID)
				}
			}
			ids = append(ids, all[len(all)-1].ID+1000) // never was
			result := s.load(t, ids, 0)
			if want := len(ids) - 1 - c.gone; len(result.Rows) != want || result.Full {
				t.Errorf("got %d rows, full %t, want %d, not full", len(result.Rows), result.Full, want)
			}
			if !slices.IsSortedFunc(result.Rows, func(a, b *store.Row) int { return int(a.ID - b.ID) }) {
				t.Error("the rows do not come by id")
			}
			for _, row := range result.Rows {
				i := slices.IndexFunc(all, func(r *store.Row) bool { return r.ID == row.ID })
				if i < 0 || !c.pick(i) || row.Event.ID != all[i].Event.ID || !bytes.Equal(row.Event.Data, all[i].Event.Data) {
					t.Errorf("row %d was not asked for, or is another", row.ID)
					continue
				}
				state := [3]any{row.Status, row.Parked, row.HasRetry}
				want := [3]any{store.StatusPending, false, false}
				switch i {
				case 1:
					want = [3]any{store.StatusDead, true, false}
				case 2:
					want = [3]any{store.StatusPending, true, true}
				case 3:
					want = [3]any{store.StatusPending, true, false}
				}
				if state != want {
					t.Errorf("row %d: got %v, want %v", i, state, want)
				}
			}
		})
	}
	if none := s.load(t, nil, 0); len(none.Rows) != 0 || none.Full {
		t.Errorf("a load of nothing: got %d rows, full %t", len(none.Rows), none.Full)
	}
}

func loadBytes[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	for _, size := range []int{100, 40_000} { // which a store may read in different ways
		var events []waybill.Event
		for range 6 {
			e := s.event("one key")
			e.Data = bytes.Repeat([]byte("x"), size)
			events = append(events, e)
		}
		s.append(t, events...)
		var ids []int64
		rows := s.hotByID(t)
		for _, e := range events {
			ids = append(ids, rows[e.ID].ID)
		}
		for _, c := range []struct {
			maxBytes, want int
			full           bool
		}{{size*5/2 + 1, 3, true}, {1, 1, true}, {100 * size, 6, false}, {0, 6, false}} {
			result := s.load(t, ids, c.maxBytes)
			if len(result.Rows) != c.want || result.Full != c.full {
				t.Errorf("max bytes %d: got %d rows, full %t, want %d, %t", c.maxBytes, len(result.Rows), result.Full, c.want, c.full)
			}
			for i, row := range result.Rows {
				if row.Event.ID != events[i].ID || len(row.Event.Data) != size {
					t.Errorf("max bytes %d, row %d: got %s with %d bytes, want %s with %d", c.maxBytes, i, row.Event.ID, len(row.Event.Data), events[i].ID, size)
				}
			}
		}
	}
}

func fetchParked[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	waiting, dead, follower, healthy := s.event("a"), s.event("b"), s.event("a"), s.event("c")
	s.append(t, waiting, dead, follower, healthy)
	rows := s.hotByID(t)
	guard := s.own(t)
	s.apply(t, guard, failed(rows[waiting.ID], false, -time.Second, "later"))
	s.apply(t, guard, failed(rows[dead.ID], true, 0, "never"))
	s.apply(t, guard, store.Changes{Parked: []int64{rows[follower.ID].ID}})
	s.wantHot(t, healthy.ID)
	if parked := s.tracked(t, follower.ID); parked.Row == nil || !parked.Row.Parked || parked.Status != store.StatusPending || parked.Row.HasRetry {
		t.Errorf("the follower: got %+v, want it parked, and no more", parked.Row)
	}
}

func fetchKeyAll[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("k", "k", "other", "k", "k")
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	s.apply(t, guard, failed(rows[events[0].ID], true, 0, "never"))
	s.apply(t, guard, failed(rows[events[1].ID], false, time.Hour, "later"))
	s.apply(t, guard, store.Changes{Parked: []int64{rows[events[3].ID].ID}})
	first := rows[events[0].ID]
	request := store.KeyRequest{Lane: first.Lane, KeyHash: first.KeyHash, Limit: 10}
	got := s.fetchKey(t, request)
	wantKey(t, "all", got, events[0].ID, events[1].ID, events[3].ID, events[4].ID)
	if !got.Rows[0].Parked || got.Rows[0].Status != store.StatusDead || !got.Rows[1].HasRetry || got.Rows[3].Parked {
		t.Errorf("states are wrong: %+v", got.Rows)
	}
	request.SkipDead = true
	wantKey(t, "without dead", s.fetchKey(t, request), events[1].ID, events[3].ID, events[4].ID)

	results, err := s.Outbox.SkipDead(t.Context(), store.Action{Actor: "test", Reason: "bad data"}, []string{events[0].ID})
	if err != nil || len(results) != 1 || results[0].Outcome != store.OutcomeSkipped {
		t.Fatalf("skip: got %v, %v", results, err)
	}
	wantKey(t, "to be skipped", s.fetchKey(t, request), events[0].ID, events[1].ID, events[3].ID, events[4].ID)
}

func wantKey(t *testing.T, what string, got store.FetchResult, ids ...string) {
	t.Helper()
	var have []string
	for _, row := range got.Rows {
		have = append(have, row.Event.ID)
	}
	if !slices.Equal(have, ids) {
		t.Fatalf("%s: got %v, want %v", what, have, ids)
	}
}

func fetchKeyBounds[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("k", "k", "k", "k", "k")
	s.append(t, events...)
	first := s.row(t, events[0].ID)
	request := store.KeyRequest{Lane: first.Lane, KeyHash: first.KeyHash, Limit: 2}
	page := s.fetchKey(t, request)
	wantKey(t, "first page", page, events[0].ID, events[1].ID)
	if !page.Full {
		t.Error("the first page is not full")
	}
	request.After, request.Limit = page.Rows[1].ID, 10
	page = s.fetchKey(t, request)
	wantKey(t, "the rest", page, events[2].ID, events[3].ID, events[4].ID)
	if page.Full {
		t.Error("the rest is full")
	}
	request.After, request.MaxBytes = 0, len(events[0].Data)+1
	page = s.fetchKey(t, request)
	wantKey(t, "bytes", page, events[0].ID, events[1].ID)
	if !page.Full {
		t.Error("a page cut by its bytes is not full")
	}
}

func fetchDue[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("a", "b", "c", "d", "e")
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	s.apply(t, guard, failed(rows[events[0].ID], false, time.Hour, "x"))
	s.apply(t, guard, failed(rows[events[1].ID], false, -time.Minute, "x"))
	s.apply(t, guard, failed(rows[events[2].ID], false, -time.Hour, "x"))
	s.apply(t, guard, failed(rows[events[3].ID], true, -time.Hour, "x"))
	due := func(lanes []int, limit int) []string {
		t.Helper()
		got, err := s.Outbox.FetchDue(t.Context(), lanes, limit)
		if err != nil {
			t.Fatalf("fetch due: %v", err)
		}
		var ids []string
		for _, row := range got {
			if !row.HasRetry || row.RetryIn > 0 {
				t.Errorf("row of %s: retry in %v, set %t", row.Event.ID, row.RetryIn, row.HasRetry)
			}
			ids = append(ids, row.Event.ID)
		}
		return ids
	}
	if got, want := due(allLanes(), 10), []string{events[2].ID, events[1].ID}; !slices.Equal(got, want) {
		t.Errorf("due: got %v, want %v", got, want)
	}
	if got, want := due(allLanes(), 1), []string{events[2].ID}; !slices.Equal(got, want) {
		t.Errorf("the first due: got %v, want %v", got, want)
	}
	others := slices.DeleteFunc(allLanes(), func(lane int) bool { return lane == rows[events[2].ID].Lane })
	if slices.Contains(due(others, 10), events[2].ID) {
		t.Error("a row of another lane is due")
	}
	if got := due(nil, 10); len(got) != 0 {
		t.Errorf("due in no lanes: got %v", got)
	}
	// A verb makes a DEAD row due, and time one in backoff.
	action := store.Action{Actor: "test", Reason: "mended"}
	if _, err := s.Outbox.RetryDead(t.Context(), action, []string{events[3].ID}); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(due(allLanes(), 10), events[3].ID) {
		t.Error("a retried event is not due")
	}
	s.apply(t, guard, failed(rows[events[4].ID], false, short, "x"))
	eventually(t, "the backoff ends", func() bool { return slices.Contains(due(allLanes(), 10), events[4].ID) })
}

func heldKeys[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	events := s.events("a", "a", "b", "c")
	events[2].Topic = "other"
	s.append(t, events...)
	rows := s.hotByID(t)
	guard := s.own(t)
	held := func(lanes []int) map[int64]store.HeldKey {
		t.Helper()
		keys, err := s.Outbox.HeldKeys(t.Context(), lanes)
		if err != nil {
			t.Fatalf("held keys: %v", err)
		}
		byHash := make(map[int64]store.HeldKey)
		for _, key := range keys {
			byHash[key.KeyHash] = key
		}
		if len(byHash) != len(keys) {
			t.Errorf("a key was named twice: %v", keys)
		}
		return byHash
	}
	if got := held(allLanes()); len(got) != 0 {
		t.Errorf("held keys of a healthy queue: %v", got)
	}
	s.apply(t, guard, failed(rows[events[0].ID], false, time.Hour, "x"))
	s.apply(t, guard, store.Changes{Parked: []int64{rows[events[1].ID].ID}})
	s.apply(t, guard, failed(rows[events[2].ID], true, 0, "x"))
	got := held(allLanes())
	for _, e := range []waybill.Event{events[0], events[2]} {
		row := rows[e.ID]
		want := store.HeldKey{Lane: row.Lane, KeyHash: row.KeyHash, TopicHash: row.TopicHash, Topic: e.Topic}
		if got[row.KeyHash] != want {
			t.Errorf("held key: got %+v, want %+v", got[row.KeyHash], want)
		}
	}
	if len(got) != 2 {
		t.Errorf("got %d held keys, want 2", len(got))
	}
	others := slices.DeleteFunc(allLanes(), func(lane int) bool { return lane == rows[events[2].ID].Lane })
	if _, ok := held(others)[rows[events[2].ID].KeyHash]; ok {
		t.Error("a key of another lane was named")
	}
	s.apply(t, guard, settled(rows[events[0].ID], rows[events[1].ID], rows[events[2].ID]))
	if got := held(allLanes()); len(got) != 0 {
		t.Errorf("held keys after settling: %v", got)
	}
}

func (s *suite[TX]) frontier(t testing.TB) store.Frontier {
	t.Helper()
	frontier, err := s.Outbox.Frontier(t.Context())
	if err != nil {
		t.Fatalf("frontier: %v", err)
	}
	return frontier
}

func frontierOpen[TX any](t *testing.T, s *suite[TX]) {
	s.needsTwoWriters(t)
	s.open(t)
	late, early := s.event("a"), s.event("b")
	open := s.begin(t)
	s.appendTo(t, open, late)
	s.append(t, early)
	seen := s.frontier(t)
	if row := s.row(t, early.ID); seen.MaxID != row.ID {
		t.Fatalf("max id: got %d, want %d", seen.MaxID, row.ID)
	}
	if now := s.frontier(t); now.Closed >= seen.Opened {
		t.Fatalf("closed %d >= opened %d while a lower id is uncommitted", now.Closed, seen.Opened)
	}
	s.append(t, s.event("c")) // what comes later must not close it either
	if now := s.frontier(t); now.Closed >= seen.Opened {
		t.Fatalf("closed %d >= opened %d after another commit", now.Closed, seen.Opened)
	}
	s.commit(t, open)
	eventually(t, "the frontier closes after the commit", func() bool { return s.frontier(t).Closed >= seen.Opened })
	if s.row(t, late.ID).ID >= seen.MaxID {
		t.Error("the late id is not lower: the case proves nothing")
	}
}

func frontierCloses[TX any](t *testing.T, s *suite[TX]) {
	s.open(t)
	if got := s.frontier(t); got.MaxID != 0 {
		t.Errorf("max id of an empty outbox: got %d, want 0", got.MaxID)
	}
	rows := s.spread(t, 3)
	seen := s.frontier(t)
	if seen.MaxID != rows[2].ID {
		t.Errorf("max id: got %d, want %d", seen.MaxID, rows[2].ID)
	}
	eventually(t, "the frontier closes", func() bool { return s.frontier(t).Closed >= seen.Opened })
	// A settled event does not take the frontier back below what is still there.
	s.apply(t, s.own(t), settled(rows[0]))
	if got := s.frontier(t); got.MaxID != rows[2].ID {
		t.Errorf("max id after settling the first: got %d, want %d", got.MaxID, rows[2].ID)
	}
}
