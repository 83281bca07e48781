package mybinlog

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"

	"github.com/go-mysql-org/go-mysql/replication"
)

// A sieve takes large compressed transactions out of what the server sends. Each
// is one event, of up to a gigabyte, and the library keeps the whole of it in
// memory, while its parts grow together more than twice over; the decoder reads
// it from the connection instead, and keeps nothing. All else passes.
type sieve struct {
	net.Conn
	decoder *decoder
	from    *bufio.Reader

	head  [packetHead]byte
	out   []byte // of head, not passed on yet
	left  int    // of the packet, behind its head
	joins bool   // the next packet goes on with this one
	taken byte   // packets that were taken out: the library must not miss their numbers
}

const (
	packetHead = 4
	packetFull = 1<<24 - 1 // one of this length is followed by another of the same message
	// largeEvent is from what length on an event is worth the trouble, in bytes.
	largeEvent = 64 << 10
	// readAhead is what the decoder reads at a time. It holds more than the fields
	// before the bytes of a transaction.
	readAhead = 64 << 10
)

func newSieve(conn net.Conn, d *decoder) *sieve {
	return &sieve{Conn: conn, decoder: d, from: bufio.NewReaderSize(conn, readAhead)}
}

// Read is called by one goroutine, the one that hands events to the decoder.
func (s *sieve) Read(to []byte) (int, error) {
	for {
		switch {
		case len(s.out) > 0:
			n := copy(to, s.out)
			s.out = s.out[n:]
			return n, nil
		case s.left > 0:
			n, err := s.from.Read(to[:min(len(to), s.left)])
			s.left -= n
			return n, err
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
}

// next begins a packet, or takes one out with those that go on with it.
func (s *sieve) next() error {
	length, err := s.readHead()
	if err != nil {
		return err
	}
	if !s.joins && length >= largeEvent {
		const begins = 1 + headerSize // behind a byte that says that all is well
		begin, err := s.from.Peek(begins)
		if err != nil {
			return err
		}
		if begin[0] == 0 && replication.EventType(begin[1+4]) == replication.TRANSACTION_PAYLOAD_EVENT {
			return s.take(length)
		}
	}
	s.head[3] -= s.taken
	s.out, s.left, s.joins = s.head[:], length, length == packetFull
	return nil
}

func (s *sieve) readHead() (length int, err error) {
	_, err = io.ReadFull(s.from, s.head[:])
	return int(s.head[0]) | int(s.head[1])<<8 | int(s.head[2])<<16, err
}

func (s *sieve) take(length int) error {
	s.taken++
	message := &message{sieve: s, left: length, joins: length == packetFull}
	var begin [1 + headerSize]byte
	if _, err := io.ReadFull(message, begin[:]); err != nil {
		return err
	}
	if err := s.decoder.streamed(begin[1:], message); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, message)
	return err
}

// message reads what the server has cut into packets.
type message struct {
	sieve *sieve
	left  int
	joins bool
}

func (m *message) Read(to []byte) (int, error) {
	for m.left == 0 {
		if !m.joins {
			return 0, io.EOF
		}
		length, err := m.sieve.readHead()
		if err != nil {
			return 0, unexpected(err)
		}
		m.sieve.taken++
		m.left, m.joins = length, length == packetFull
	}
	n, err := m.sieve.from.Read(to[:min(len(to), m.left)])
	m.left -= n
	return n, unexpected(err)
}

// unexpected makes the end of the connection no end of a message.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // as readers return it
		return io.ErrUnexpectedEOF
	}
	return err
}

// streamed reads a compressed transaction of which there is the header only.
func (d *decoder) streamed(header []byte, from io.Reader) error {
	d.place(replication.TRANSACTION_PAYLOAD_EVENT, header, nil)
	size := int64(binary.LittleEndian.Uint32(header[9:])) - headerSize
	if d.checksum {
		size -= checksumSize
	}
	body := bufio.NewReaderSize(io.LimitReader(from, size), readAhead)
	begin, err := body.Peek(int(min(size, 1024)))
	if err != nil {
		return err
	}
	compression, rest, err := readPayload(begin)
	if err != nil {
		return err
	}
	if _, err := body.Discard(len(begin) - len(rest)); err != nil {
		return err
	}
	return d.unpack(compression, body)
}
