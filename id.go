package waybill

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// NewID returns a UUID version 7 (RFC 9562, section 5.7) in its text form:
// 48 bits of Unix milliseconds, then random bits. IDs made later sort later,
// to the millisecond.
func NewID() string {
	var u [16]byte
	rand.Read(u[:]) // never fails, by contract
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (8 * (5 - i)))
	}
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], u[0:4])
	hex.Encode(text[9:13], u[4:6])
	hex.Encode(text[14:18], u[6:8])
	hex.Encode(text[19:23], u[8:10])
	hex.Encode(text[24:36], u[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// KeyID returns the one ID that belongs to (tenant, aggregate type, aggregate
// id, version, event type), so that appending the same change twice is noticed.
// Different arguments give different IDs: parts are escaped and joined with
// '/', and an ID longer than MaxIDLen is replaced by "sha256:" and the hash of
// the whole in hexadecimal.
func KeyID(tenantID, aggregateType, aggregateID string, version int64, eventType string) string {
	parts := []string{tenantID, aggregateType, aggregateID, strconv.FormatInt(version, 10), eventType}
	for i, part := range parts {
		parts[i] = keyIDEscaper.Replace(part)
	}
	id := strings.Join(parts, "/")
	if len(id) <= MaxIDLen {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hashedIDPrefix + hex.EncodeToString(sum[:])
}

const hashedIDPrefix = "sha256:"

// A joined ID has four slashes and a hashed one has none, so the two never meet.
var keyIDEscaper = strings.NewReplacer("%", "%25", "/", "%2F")
