package natsjs

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"strings"
)

const maxTokenLen = 180 // a stream's name may have 255 bytes, prefix included

// Token returns the part of a subject, stream name or key that stands for a
// topic or a group. Letters, digits and '-' stand for themselves, '_' is "__",
// '.' is "_d", any other byte is "_x" and two hexadecimal digits. A name whose
// token would be very long has "_h" and its SHA-256 instead. Different names
// have different tokens.
func Token(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
			b.WriteByte(c)
		case c == '_':
			b.WriteString("__")
		case c == '.':
			b.WriteString("_d")
		default:
			b.WriteString("_x")
			b.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	if b.Len() <= maxTokenLen {
		return b.String()
	}
	sum := sha256.Sum256([]byte(name))
	return "_h" + hex.EncodeToString(sum[:])
}

func (c *Config) streamName(topic string) string { return c.Prefix + "-" + Token(topic) }

// positionsBucket cannot be a stream of a topic: a bucket's stream is named "KV_...".
func (c *Config) positionsBucket() string { return c.Prefix + "-positions" }

func (c *Config) subjects(topic string, partitions int) string {
	return c.Prefix + "." + Token(topic) + "." + strconv.Itoa(partitions) + ".*"
}

func (c *Config) subject(topic string, partitions int, id int32) string {
	return c.Prefix + "." + Token(topic) + "." + strconv.Itoa(partitions) + "." + strconv.Itoa(int(id))
}

func positionKey(group, topic string, id int32) string {
	return Token(group) + "." + Token(topic) + "." + strconv.Itoa(int(id))
}

// PartitionOf returns the partition, of n, that a key belongs to: FNV-1a of its
// bytes, 32 bits, modulo n.
func PartitionOf(key string, n int) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int32(h.Sum32() % uint32(n))
}
