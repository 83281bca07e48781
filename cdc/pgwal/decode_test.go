package pgwal

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/waybillhq/waybill/cdc"
)

// wire builds messages of pgoutput.
type wire []byte

func message(kind byte) wire       { return wire{kind} }
func (w wire) u8(v byte) wire      { return append(w, v) }
func (w wire) u16(v uint16) wire   { return binary.BigEndian.AppendUint16(w, v) }
func (w wire) u32(v uint32) wire   { return binary.BigEndian.AppendUint32(w, v) }
func (w wire) u64(v uint64) wire   { return binary.BigEndian.AppendUint64(w, v) }
func (w wire) text(s string) wire  { return append(append(w, s...), 0) }
func (w wire) value(s string) wire { return append(w.u8('t').u32(uint32(len(s))), s...) }
func begin() wire                  { return message('B').u64(900).u64(1_000_000).u32(7) }
func commit(end uint64) wire       { return message('C').u8(0).u64(end - 8).u64(end).u64(1_000_000) }

func insert(oid uint32, columns int) wire { return message('I').u32(oid).u8('N').u16(uint16(columns)) }

func mark(prefix, text string) wire {
	return append(message('M').u8(1).u64(1).text(prefix).u32(uint32(len(text))), text...)
}
func (w wire) column(name string) wire    { return w.u8(0).text(name).u32(20).u32(0) }
func relate(oid uint32, s, t string) wire { return message('R').u32(oid).text(s).text(t).u8('d') }
func outboxes(oid uint32, c ...string) wire {
	w := relate(oid, "public", "outbox_event").u16(uint16(len(c)))
	for _, name := range c {
		w = w.column(name)
	}
	return w
}

func decodeAll(t testing.TB, messages ...wire) (batches []cdc.Batch) {
	d := newDecoder("public", "outbox_event", "p", func(b cdc.Batch) { batches = append(batches, b) })
	for _, m := range messages {
		if err := d.decode(m); err != nil {
			t.Fatalf("%q: %v", m, err)
		}
	}
	return batches
}

func TestDecoderFindsTheIDWhereverItIs(t *testing.T) {
	got := decodeAll(t,
		begin(), outboxes(1, "id"), relate(2, "public", "orders").u16(1).column("id"),
		insert(1, 1).value("5"), insert(2, 1).value("6"), commit(1000),
		begin(), outboxes(1, "payload", "x", "id"),
		insert(1, 3).value("\x00\xff long").u8('n').value("9223372036854775807"),
		append(insert(1, 3).u8('u').u8('b').u32(2), "ab"...).value("8"), commit(2000),
	)
	if len(got) != 2 || !slices.Equal(got[0].IDs, []int64{5}) || !slices.Equal(got[1].IDs, []int64{9223372036854775807, 8}) {
		t.Fatalf("got %+v", got)
	}
	if got[0].Position != "0/3E8" || got[0].Committed.Year() != 2000 || got[0].Undecodable+got[1].Undecodable > 0 {
		t.Errorf("got %+v", got[0])
	}
}

func TestDecoderCountsWhatItCannotRead(t *testing.T) {
	for name, row := range map[string]wire{
		"not described": insert(3, 1).value("1"),
		"no such place": insert(1, 0),
		"null":          insert(1, 1).u8('n'),
		"a word":        insert(1, 1).value("one"),
		"too large":     insert(1, 1).value("9223372036854775808"),
		"binary":        append(insert(1, 1).u8('b').u32(1), '1'),
		"cut off":       insert(1, 1).value("123")[:10],
		"no tuple":      message('I').u32(1),
		"no oid":        message('I').u16(1),
	} {
		got := decodeAll(t, begin(), outboxes(1, "id"), row, insert(1, 1).value("4"), commit(1000))
		if len(got) != 1 || got[0].Undecodable != 1 || !slices.Equal(got[0].IDs, []int64{4}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	got := decodeAll(t, begin(), outboxes(1, "key"), insert(1, 1).value("4"), commit(1000))
	if len(got) != 1 || got[0].Undecodable != 1 || len(got[0].IDs) > 0 {
		t.Errorf("without a column id: got %+v", got)
	}
}

func TestDecoderTellsLargeTransactionsInParts(t *testing.T) {
	messages := []wire{begin(), outboxes(1, "id")}
	for range 2*cdc.MaxIDs + 1 {
		messages = append(messages, insert(1, 1).value("1"))
	}
	got := decodeAll(t, append(messages, commit(1000))...)
	if len(got) != 3 || got[0].Position != "" || got[1].Position != "" || got[2].Position == "" || len(got[2].IDs) != 1 || !got[1].Committed.IsZero() {
		t.Errorf("got %d batches", len(got))
	}
}

func TestDecoderCountsTruncatesAndKnowsItsMarks(t *testing.T) {
	got := decodeAll(t, begin(), outboxes(1, "id"), relate(2, "public", "orders").u16(0), message('T').u32(2).u8(0).u32(2).u32(1),
		mark("p", "mine"), mark("q", "another's"), commit(1000))
	if len(got) != 1 || got[0].Truncates != 1 || !slices.Equal(got[0].Marks, []string{"mine"}) {
		t.Errorf("got %+v", got)
	}
}

func FuzzDecoder(f *testing.F) {
	for _, m := range []wire{
		begin(), commit(1000), outboxes(1, "id"), insert(1, 1).value("7"), mark("p", "x"), message('T').u32(1).u8(0).u32(1),
		message('Y'), message('O'),
		{},
		message('R').u32(1).text("a"), message('M').u8(0),
	} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := newDecoder("public", "outbox_event", "p", func(cdc.Batch) {})
		for _, m := range []wire{begin(), outboxes(1, "id"), data, insert(1, 1).value("7"), commit(8)} {
			_ = d.decode(m)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	d := newDecoder("public", "outbox_event", "p", func(cdc.Batch) {})
	for _, m := range []wire{begin(), outboxes(1, "id")} {
		if err := d.decode(m); err != nil {
			b.Fatal(err)
		}
	}
	row := insert(1, 1).value("123456789")
	b.ReportAllocs()
	for b.Loop() {
		if err := d.decode(row); err != nil {
			b.Fatal(err)
		}
	}
}
