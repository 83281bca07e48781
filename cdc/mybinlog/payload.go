package mybinlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Kinds of the fields before a compressed transaction's bytes.
const (
	payloadEnd         = 0
	payloadCompression = 2

	compressedZstd = 0
	notCompressed  = 255
)

// maxWindow bounds what a decoder of compressed transactions keeps.
const maxWindow = 64 << 20

var errPayload = errors.New("a compressed transaction cannot be read")

// payload reads a transaction that the server has compressed into one event.
func (d *decoder) payload(body []byte) error {
	compression, data, err := readPayload(body)
	if err != nil {
		return err
	}
	return d.unpack(compression, bytes.NewReader(data))
}

// unpack reads the events of a compressed transaction: one after the other, so
// that a large one never stands in memory as a whole.
func (d *decoder) unpack(compression uint64, events io.Reader) (err error) {
	d.packed = true
	defer func() { d.packed = false }()
	switch compression {
	case notCompressed:
	case compressedZstd:
		if d.zstd == nil {
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
				return err
			}
		}
		if err := d.zstd.Reset(events); err != nil {
			return err
		}
		defer func() { _ = d.zstd.Reset(nil) }() // it keeps what it reads from
		events = d.zstd
	default:
		return fmt.Errorf("%w: the method %d is not known", errPayload, compression)
	}
	for {
		event, err := readEvent(events, &d.inner)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errPayload, err)
		}
		if err := d.event(event); err != nil {
			return err
		}
	}
}

func readPayload(body []byte) (compression uint64, data []byte, err error) {
	for {
		kind, rest, err := packedInt(body)
		if err != nil {
			return 0, nil, errPayload
		}
		if kind == payloadEnd {
			return compression, rest, nil
		}
		length, rest, err := packedInt(rest)
		if err != nil || uint64(len(rest)) < length {
			return 0, nil, errPayload
		}
		if kind == payloadCompression {
			if compression, _, err = packedInt(rest[:length]); err != nil {
				return 0, nil, errPayload
			}
		}
		body = rest[length:]
	}
}

// readEvent reads one event into the buffer, which grows to the largest one.
func readEvent(from io.Reader, buffer *[]byte) ([]byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, err // io.EOF between events
	}
	size := int(binary.LittleEndian.Uint32(header[9:]))
	if size < headerSize {
		return nil, errPayload
	}
	if cap(*buffer) < size {
		*buffer = make([]byte, 0, size)
	}
	event := append((*buffer)[:0], header[:]...)
	event = event[:size]
	if _, err := io.ReadFull(from, event[headerSize:]); err != nil {
		return nil, fmt.Errorf("%w: %w", errPayload, io.ErrUnexpectedEOF)
	}
	return event, nil
}
