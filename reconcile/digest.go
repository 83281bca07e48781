package reconcile

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync/atomic"
)

// Most rows of a range are as the log has them. Where an arm's server can hash,
// they need not be sent to be compared: it is asked for their number and the sum
// of their hashes, and both are compared with those of the rows that the log says
// there are, which is read as ever. One row that differs changes the sum but for
// one chance in 2^64, and nobody can bring that about: the hashes begin by a
// number that each engine draws. Where they differ the rows are read.

// digest is what stands for the rows of one arm in a range.
type digest struct {
	rows int64
	sum  uint64 // of the rows' hashes, modulo 2^64
}

// digests knows which arms' servers can make digests.
type digests struct {
	seed  uint64
	null  []byte // stands for NULL, and for no other value
	known bool   // the servers were asked
	able  map[*Table]bool
	// single says that no key of the log has two events of one version.
	single bool
	filled map[*Table]map[string]bool // columns without NULL
	// failed says that a server has not answered: from then on rows are read.
	failed atomic.Bool
}

func newDigests() *digests {
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	return &digests{seed: binary.BigEndian.Uint64(seed[:]), null: []byte("waybill " + rand.Text()), able: make(map[*Table]bool), filled: make(map[*Table]map[string]bool)}
}

// ask finds out, once, which servers hash as this process does, and what their
// tables are like. One that does not answer is as good as one that hashes otherwise.
func (t *tables) ask(ctx context.Context) error {
	if t.digests.known {
		return nil
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	for _, arm := range t.each() {
		if arm.database.Dialect != Postgres || arm.database.Texts == nil {
			continue
		}
		err := t.askServer(ctx, arm)
		if log := t.check.Log; err == nil && arm.table == log.table() {
			t.digests.single, err = t.single(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t.digests.able[arm.table] = t.digests.able[arm.table] && err == nil
	}
	t.digests.known = true
	return nil
}

func (t *tables) askServer(ctx context.Context, of arm) error {
	const probe = "probe"
	s := &statement{dialect: Postgres}
	s.add("SELECT CAST(%s AS TEXT)", hashSQL("CAST("+s.bind(probe)+" AS TEXT)", "CAST("+s.bind(int64(t.digests.seed))+" AS BIGINT)"))
	err := scan(ctx, of.database.DB, s, func(_ []column, values []any) error {
		t.digests.able[of.table] = textOf(values[0]) == fmt.Sprint(int64(hash([]byte(probe), t.digests.seed)))
		return nil
	})
	if err != nil {
		return err
	}
	filled := make(map[string]bool)
	t.digests.filled[of.table] = filled
	s = &statement{dialect: Postgres}
	s.add(filledPostgres, s.bind(s.dialect.table(of.table)))
	return scan(ctx, of.database.DB, s, func(_ []column, values []any) error {
		filled[s.dialect.quote(textOf(values[0]))] = true
		return nil
	})
}

// filledPostgres lists columns that need not be looked at for NULL.
const filledPostgres = `SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND attnotnull AND NOT attisdropped`

// hashSQL hashes a text from a number on. PostgreSQL keeps the function as it is,
// since it says in which partition a row is.
func hashSQL(text, from string) string {
	return "hashtextextended(" + text + ` COLLATE "C", ` + from + ")"
}

// digestStatement asks for the digest of an arm's rows in the page, without those
// of some keys.
func (d *desk) digestStatement(table *Table, compared func(*Column) string, without []Key) *statement {
	s := &statement{dialect: Postgres}
	k := s.dialect.keys(table, d.kinds)
	hashed := d.hashed(s, k, table, func(c *Column) string {
		if c.in(c.Log) == "" {
			return ""
		}
		return compared(c)
	})
	s.add("SELECT COUNT(*), CAST(COALESCE(SUM(%s), 0) AS TEXT) FROM %s", hashed, s.dialect.table(table))
	k.where(s, d.whole)
	for _, key := range without {
		var parts []string
		for i := range k.columns {
			parts = append(parts, k.exact(i)+" = "+s.bind(k.exactParam(key, i)))
		}
		s.add(" AND NOT (%s)", strings.Join(parts, " AND "))
	}
	filter(s, table)
	return s
}

// hashed is a row's hash: of key, version and compared columns, each from the one
// before on.
func (d *desk) hashed(s *statement, k keys, table *Table, compared func(*Column) string) string {
	columns := append(slices.Clone(k.columns), s.dialect.quote(table.Version))
	for i := range d.check.Compare {
		if name := compared(&d.check.Compare[i]); name != "" {
			columns = append(columns, s.dialect.quote(name))
		}
	}
	hashed, null := "CAST("+s.bind(int64(d.digests.seed))+" AS BIGINT)", ""
	for _, column := range columns {
		text := "CAST(" + column + " AS TEXT)"
		if !d.digests.filled[table][column] {
			if null == "" {
				null = s.bind(string(d.digests.null))
			}
			text = "COALESCE(" + text + ", " + null + ")"
		}
		hashed = hashSQL(text, hashed)
	}
	return hashed
}

// digestOf reads the digest of an arm's rows.
func (d *desk) digestOf(ctx context.Context, q queryer, s *statement) (found digest, err error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	err = scan(ctx, q, s, func(_ []column, values []any) (err error) {
		found, err = digestFrom(values)
		return err
	})
	d.digests.note(err)
	return found, err
}

func (d *digests) note(err error) {
	if err != nil {
		d.failed.Store(true)
	}
}

// digested is an arm of a desk that may be compared by its digest.
type digested struct {
	side    Side
	sheet   *sheet
	able    bool   // so the last rows of the arm say
	waits   int    // pages for which its rows are read, since digests differed
	misses  int    // in a row
	matched bool   // on this page
	wanted  bool   // on this page
	digest         // that it has if it is as the log says
	latest  uint64 // hash of the row at hand
}

const (
	// mostOdd is how many keys of a page may be left out of a digest.
	mostOdd = 20
	// mostMisses bounds for how many pages rows are read after digests differed:
	// for 1, 2, 4 and so on.
	mostMisses = 6
	// hashedTypes are types whose text, cast or sent, is one, and of which equal
	// texts are equal values.
	hashedTypes = "TEXT VARCHAR INT2 INT4 INT8 NUMERIC UUID"
)

// begin settles whether the page is to be compared by a digest of the arm.
func (a *digested) begin() {
	a.matched, a.digest = false, digest{}
	a.wanted = a.able && a.waits == 0
	a.waits = max(a.waits-1, 0)
}

// note learns from a page.
func (a *digested) note(matched bool) {
	a.matched = matched
	if matched {
		a.misses = 0
		return
	}
	a.waits = 1 << a.misses
	a.misses = min(a.misses+1, mostMisses)
}

// counted returns how many rows the digest stands for, if it does.
func (a *digested) counted() int64 {
	if !a.matched {
		return 0
	}
	return a.rows
}

// learn looks at the rows of an arm whether digests can stand for them: if equal
// texts are all that it takes.
func (d *desk) learn(a *digested, table *Table) {
	if a.matched {
		return
	}
	a.able = false
	s, log := a.sheet, d.check.Log
	if d.digests.failed.Load() || table == nil || log == nil || !d.digests.able[table] || a.side == WriteSide && table.Database != log.Database || d.prover.rules.Delta ||
		!s.texts.on || !s.texts.whole || s.removed >= 0 || !d.log.texts.on || !d.log.texts.whole {
		return
	}
	if slices.ContainsFunc(s.types, func(c column) bool { return !hashable(c) }) {
		return
	}
	for i, at := range s.compared {
		if at >= 0 && d.log.payload < 0 && d.log.compared[i] >= 0 && d.log.kinds[i] != s.kinds[i] {
			return
		}
	}
	a.able = true
}

// expect says which digests the arms have if they are as the log says, and
// returns the keys that cannot be told by it. Where those are too many, no digest
// is wanted any more.
func (d *desk) expect() (odd []Key, err error) {
	var arms []*digested
	for _, arm := range []*digested{&d.byWrite, &d.byRead} {
		if arm.wanted {
			arms = append(arms, arm)
		}
	}
	if len(arms) == 0 {
		return nil, nil
	}
	refuse := func() ([]Key, error) {
		for _, arm := range arms {
			arm.note(false)
			arm.wanted = false
		}
		return nil, nil
	}
	if !d.log.texts.on || !d.log.texts.whole {
		return refuse() // a column has another type by now
	}
	var places []int
	for i := range d.log.len() {
		if !d.log.marks[i].odd && d.prover.isSent(i) && d.add(i, arms) {
			continue
		}
		if places = append(places, i); len(places) > mostOdd {
			return refuse()
		}
	}
	for _, i := range places {
		key, err := d.log.key(i, d.kinds)
		if err != nil {
			return nil, err
		}
		odd = append(odd, key)
		d.log.marks[i].odd = true
	}
	return odd, nil
}

// add adds the row that the i-th event calls for to the digests, and reports
// whether it could: to all of them, or to none.
func (d *desk) add(i int, arms []*digested) bool {
	if d.prover.isDelete(i) {
		return true
	}
	l := &d.log
	if l.payload >= 0 && !d.prover.open(i) {
		return false
	}
	from := d.digests.seed
	for at := range d.kinds {
		from = hash(l.texts.cell(i*l.width+at), from)
	}
	from = hash(l.texts.cell(i*l.width+l.version), from)
	for n, arm := range arms {
		if n > 0 && arm.alike(arms[0]) {
			arm.latest = arms[0].latest
			continue
		}
		arm.latest = from
		for c := range d.check.Compare {
			if arm.sheet.compared[c] < 0 || !d.prover.rules.Columns[c].Log {
				continue
			}
			text, told := d.textOf(i, c, arm.sheet.kinds[c])
			if !told {
				return false
			}
			if text == nil {
				text = d.digests.null
			}
			arm.latest = hash(text, arm.latest)
		}
	}
	for _, arm := range arms {
		arm.rows++
		arm.sum += arm.latest
	}
	return true
}

func hashable(c column) bool { return slices.Contains(strings.Fields(hashedTypes), c.database) }

// alike reports whether two arms' rows have one hash.
func (a *digested) alike(b *digested) bool {
	for c, at := range a.sheet.compared {
		if (at < 0) != (b.sheet.compared[c] < 0) || a.sheet.kinds[c] != b.sheet.kinds[c] {
			return false
		}
	}
	return true
}

// textOf returns the text that a column of the kind has if it is as the i-th event
// says, nil for NULL; false where that cannot be told.
func (d *desk) textOf(i, column int, kind Kind) ([]byte, bool) {
	if d.log.payload >= 0 {
		return d.prover.literals[column].as(d.prover.members[column], kind)
	}
	return d.log.texts.cell(i*d.log.width + d.log.compared[column]), true
}

// hash is the function of the servers: Bob Jenkins' lookup3 (2006) from a number
// on, as PostgreSQL's hash_bytes_extended has it on machines of little end.
func hash(text []byte, from uint64) uint64 {
	a := 0x9e3779b9 + uint32(len(text)) + 3923095
	b, c := a, a
	if from != 0 {
		a, b, c = mix(a+uint32(from>>32), b+uint32(from), c)
	}
	for ; len(text) >= 12; text = text[12:] {
		a, b, c = mix(a+binary.LittleEndian.Uint32(text), b+binary.LittleEndian.Uint32(text[4:]), c+binary.LittleEndian.Uint32(text[8:]))
	}
	// The lowest byte of c is left to the length.
	var rest [12]byte
	copy(rest[:8], text)
	if len(text) > 8 {
		copy(rest[9:], text[8:])
	}
	a += binary.LittleEndian.Uint32(rest[:])
	b += binary.LittleEndian.Uint32(rest[4:])
	c += binary.LittleEndian.Uint32(rest[8:])
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return uint64(b)<<32 | uint64(c)
}

func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a, c = (a-c)^bits.RotateLeft32(c, 4), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 6), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 8), b+a
	a, c = (a-c)^bits.RotateLeft32(c, 16), c+b
	b, a = (b-a)^bits.RotateLeft32(a, 19), a+c
	c, b = (c-b)^bits.RotateLeft32(b, 4), b+a
	return a, b, c
}
