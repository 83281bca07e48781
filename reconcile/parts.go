package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"time"
)

// Where no index gives an arm in the order of the keys, sorting it for each
// range would take forever. All arms are then read once, in whatever order, and
// their rows put into parts by a hash of the key, in files that are gone with
// the process. Each part fits into memory, and is sorted and compared there.
const (
	partCount = 256
	partBlock = 4 << 10 // bytes of a part that are written at once
	// wholeTimes is how many times the time of a range's statement that of a whole
	// table may take.
	wholeTimes = 60
)

// parts walks over all keys, those of one hash at a time. A page of it is no
// range. One that could not be read is the last.
func (t *tables) parts(ctx context.Context) iter.Seq[page] {
	return func(yield func(page) bool) {
		p := &parts{desk: newDesk(t), seed: maphash.MakeSeed()}
		defer p.close()
		if err := p.fill(ctx); err != nil {
			yield(page{err: err})
			return
		}
		for n := range partCount {
			found, err := p.compare(n)
			if err != nil {
				found = page{err: err}
			}
			if !yield(found) || err != nil || ctx.Err() != nil {
				return
			}
		}
	}
}

type parts struct {
	*desk
	seed    maphash.Seed
	shelves [3]shelf // write, log, read
}

func (p *parts) close() {
	for i := range p.shelves {
		p.shelves[i].close()
	}
}

// fill reads the arms: row and log in one snapshot, the read side after both.
func (p *parts) fill(ctx context.Context) error {
	c := p.check
	limit := wholeTimes * c.StatementTimeout
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	patient := func(d Database) Database { d.timeout = limit; return d }
	log := func(q queryer) error { return p.put(ctx, q, p.eventStatement(0), &p.log, &p.shelves[1]) }
	if c.Write != nil {
		err := patient(p.tables.write).snapshot(ctx, func(q queryer) error {
			err := p.put(ctx, q, p.rowStatement(p.tables.write.Dialect, c.Write, &p.write, writeColumn, 0), &p.write, &p.shelves[0])
			if err == nil && c.Log != nil && c.Write.Database == c.Log.Database {
				err = log(q)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("write side and log: %w", err)
		}
	}
	if c.Log != nil && (c.Write == nil || c.Write.Database != c.Log.Database) {
		if err := patient(p.tables.log).snapshot(ctx, log); err != nil {
			return fmt.Errorf("log: %w", err)
		}
	}
	if c.Read != nil {
		err := patient(p.tables.read).snapshot(ctx, func(q queryer) error {
			return p.put(ctx, q, p.rowStatement(p.tables.read.Dialect, c.Read, &p.read, readColumn, 0), &p.read, &p.shelves[2])
		})
		if err != nil {
			return fmt.Errorf("read side: %w", err)
		}
	}
	return nil
}

// put reads a statement's rows onto a shelf.
func (p *parts) put(ctx context.Context, q queryer, s *statement, as *sheet, onto *shelf) (err error) {
	rows, err := q.QueryContext(ctx, s.bounded(ctx), s.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if as.types, err = columnsOf(rows); err != nil {
		return err
	}
	as.resolve(p.tables)
	as.width = len(as.types)
	row, targets := make([]any, as.width), make([]any, as.width)
	for i := range row {
		targets[i] = &row[i]
	}
	var order, record []byte
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		if order, err = appendOrder(order[:0], p.kinds, row); err != nil {
			return err
		}
		record = append(binary.AppendUvarint(record[:0], uint64(len(order))), order...)
		for _, cell := range row {
			if record, err = appendCell(record, cell); err != nil {
				return err
			}
		}
		if err := onto.add(int(maphash.Bytes(p.seed, order)%partCount), record); err != nil {
			return err
		}
	}
	return rows.Err()
}

// compare takes one part off the shelves, sorts it and compares it.
func (p *parts) compare(n int) (page, error) {
	for i, into := range []*sheet{&p.write, &p.log, &p.read} {
		var fold fold
		if i == 1 {
			fold = p.prover.newer
		}
		if err := p.shelves[i].take(n, into, fold); err != nil {
			return page{}, err
		}
	}
	return p.prover.page(Range{}, &p.byWrite, &p.byRead), nil
}

// shelf holds the rows of one arm, by part.
type shelf struct {
	file *os.File
	size int64
	bins [partCount]bin
}

// bin is one part: blocks in the file, and what is not written yet.
type bin struct {
	blocks []block
	rest   []byte
}

type block struct{ at, size int64 }

func (s *shelf) add(n int, record []byte) error {
	b := &s.bins[n]
	b.rest = append(b.rest, record...)
	if len(b.rest) < partBlock {
		return nil
	}
	if s.file == nil {
		file, err := os.CreateTemp("", "waybill-parts-*")
		if err != nil {
			return err
		}
		_ = os.Remove(file.Name()) // where that is not possible, close does it
		s.file = file
	}
	if _, err := s.file.WriteAt(b.rest, s.size); err != nil {
		return err
	}
	b.blocks = append(b.blocks, block{s.size, int64(len(b.rest))})
	s.size += int64(len(b.rest))
	b.rest = b.rest[:0]
	return nil
}

func (s *shelf) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

// take fills a sheet from a part, in the order of the keys, events by version.
func (s *shelf) take(n int, into *sheet, fold fold) error {
	b := &s.bins[n]
	var text []byte
	for _, block := range b.blocks {
		at := len(text)
		text = slices.Grow(text, int(block.size))[:at+int(block.size)]
		if _, err := s.file.ReadAt(text[at:], block.at); err != nil {
			return err
		}
	}
	text = append(text, b.rest...)
	*b = bin{}
	var rows []filed
	for len(text) > 0 {
		var r filed
		var err error
		if r, text, err = readFiled(text, into.width); err != nil {
			return err
		}
		if r.version, err = versionOf(r.cells[into.version]); err != nil {
			return err
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b filed) int {
		return cmp.Or(bytes.Compare(a.order, b.order), cmp.Compare(a.version, b.version))
	})
	into.cells, into.orders, into.ends, into.read = into.cells[:0], into.orders[:0], into.ends[:0], 0
	for i := range rows {
		into.cells = append(into.cells, rows[i].cells...)
		if err := into.keep(rows[i].order, fold); err != nil {
			return err
		}
	}
	return nil
}

// filed is a row as it came off a shelf.
type filed struct {
	order   []byte
	version int64
	cells   []any
}

var errFiled = errors.New("a temporary file is damaged")

func readFiled(text []byte, width int) (r filed, rest []byte, err error) {
	size, n := binary.Uvarint(text)
	if n <= 0 || uint64(len(text)-n) < size {
		return r, nil, errFiled
	}
	r.order, text = text[n:n+int(size)], text[n+int(size):]
	r.cells = make([]any, width)
	for i := range r.cells {
		if r.cells[i], text, err = readCell(text); err != nil {
			return r, nil, err
		}
	}
	return r, text, nil
}

// The kinds of cell: what drivers return.
const (
	cellNull = iota
	cellFalse
	cellTrue
	cellInt
	cellUint
	cellFloat
	cellSingle
	cellText
	cellBytes
	cellTime
)

func appendCell(record []byte, cell any) ([]byte, error) {
	switch x := cell.(type) {
	case nil:
		return append(record, cellNull), nil
	case bool:
		if x {
			return append(record, cellTrue), nil
		}
		return append(record, cellFalse), nil
	case int64:
		return binary.AppendVarint(append(record, cellInt), x), nil
	case uint64:
		return binary.AppendUvarint(append(record, cellUint), x), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(record, cellFloat), math.Float64bits(x)), nil
	case float32:
		return binary.BigEndian.AppendUint32(append(record, cellSingle), math.Float32bits(x)), nil
	case string:
		return append(binary.AppendUvarint(append(record, cellText), uint64(len(x))), x...), nil
	case []byte:
		return append(binary.AppendUvarint(append(record, cellBytes), uint64(len(x))), x...), nil
	case time.Time:
		text, err := x.MarshalBinary()
		return append(binary.AppendUvarint(append(record, cellTime), uint64(len(text))), text...), err
	}
	return nil, fmt.Errorf("a driver returned %T", cell)
}

func readCell(text []byte) (cell any, rest []byte, err error) {
	if len(text) == 0 {
		return nil, nil, errFiled
	}
	kind := text[0]
	text = text[1:]
	in := bytes.NewReader(text)
	left := func() []byte { return text[len(text)-in.Len():] }
	switch kind {
	case cellNull:
		return nil, text, nil
	case cellFalse, cellTrue:
		return kind == cellTrue, text, nil
	case cellInt:
		n, err := binary.ReadVarint(in)
		return n, left(), err
	case cellUint:
		n, err := binary.ReadUvarint(in)
		return n, left(), err
	case cellFloat:
		var bits [8]byte
		_, err := io.ReadFull(in, bits[:])
		return math.Float64frombits(binary.BigEndian.Uint64(bits[:])), left(), err
	case cellSingle:
		var bits [4]byte
		_, err := io.ReadFull(in, bits[:])
		return math.Float32frombits(binary.BigEndian.Uint32(bits[:])), left(), err
	}
	size, err := binary.ReadUvarint(in)
	if err != nil || uint64(in.Len()) < size {
		return nil, nil, errors.Join(err, errFiled)
	}
	content := left()[:size]
	rest = left()[size:]
	switch kind {
	case cellText:
		return string(content), rest, nil
	case cellBytes:
		return bytes.Clone(content), rest, nil
	case cellTime:
		var at time.Time
		err := at.UnmarshalBinary(content)
		return at, rest, err
	}
	return nil, nil, errFiled
}
