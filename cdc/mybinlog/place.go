package mybinlog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// gtid is the global id of one transaction. MySQL numbers them for each source,
// a server's UUID and perhaps a tag; MariaDB for each domain, of which server is
// the one that wrote last.
type gtid struct {
	source string // MySQL: "uuid", or "uuid:tag"
	domain uint32 // MariaDB
	server uint32 // MariaDB
	number uint64 // 0 for a transaction without an id
}

// place says which transactions were read. Its text is a cdc.Position.
type place interface {
	String() string
	add(id gtid)
	clone() place
	// wire is the form in which the server is asked to go on from here.
	wire() (mysql.GTIDSet, error)
}

func parsePlace(flavor, text string) (place, error) {
	if flavor == mysql.MariaDBFlavor {
		return parseDomains(text)
	}
	return parseSources(text)
}

// sources is a set of MySQL's ids: intervals of numbers for each source.
type sources map[string]mysql.IntervalSlice

// parseSources reads "uuid:1-5:7,uuid:tag:1-3", where a tag may also follow the
// intervals of another one of the same UUID.
func parseSources(text string) (place, error) {
	set := make(sources)
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		fields := strings.Split(part, ":")
		server := strings.ToLower(strings.TrimSpace(fields[0]))
		if _, err := sourceBytes(server); err != nil {
			return nil, err
		}
		source := server
		for _, field := range fields[1:] {
			if field = strings.TrimSpace(field); field == "" {
				return nil, fmt.Errorf("%q is not a set of GTIDs", part)
			}
			if field[0] < '0' || field[0] > '9' {
				source = server + ":" + strings.ToLower(field)
				continue
			}
			interval, err := parseInterval(field)
			if err != nil {
				return nil, fmt.Errorf("%q is not a set of GTIDs: %w", part, err)
			}
			set[source] = append(set[source], interval)
		}
	}
	for source, intervals := range set {
		set[source] = intervals.Normalize()
	}
	return set, nil
}

func parseInterval(text string) (mysql.Interval, error) {
	first, last, ranged := strings.Cut(text, "-")
	start, err := strconv.ParseInt(first, 10, 63)
	stop := start
	if err == nil && ranged {
		stop, err = strconv.ParseInt(last, 10, 63)
	}
	if err == nil && (start < 1 || stop < start) {
		err = fmt.Errorf("the interval %q is empty", text)
	}
	return mysql.Interval{Start: start, Stop: stop + 1}, err
}

func (s sources) String() string {
	var b strings.Builder
	for _, source := range slices.Sorted(maps.Keys(s)) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(source)
		for _, interval := range s[source] {
			b.WriteByte(':')
			b.WriteString(interval.String())
		}
	}
	return b.String()
}

func (s sources) add(id gtid) {
	if id.number == 0 {
		return
	}
	intervals := s[id.source]
	intervals.InsertInterval(mysql.Interval{Start: int64(id.number), Stop: int64(id.number) + 1})
	s[id.source] = intervals
}

func (s sources) clone() place {
	set := make(sources, len(s))
	for source, intervals := range s {
		set[source] = slices.Clone(intervals)
	}
	return set
}

// wire encodes the set itself, because the library does not know of tags. With
// any of them the first number also tells of the other form, and each source
// has its tag after its UUID.
func (s sources) wire() (mysql.GTIDSet, error) {
	tagged := false
	for source := range s {
		tagged = tagged || strings.Contains(source, ":")
	}
	count := uint64(len(s))
	if tagged {
		count = 1<<56 | count<<8 | 1
	}
	data := binary.LittleEndian.AppendUint64(nil, count)
	for _, source := range slices.Sorted(maps.Keys(s)) {
		server, tag, _ := strings.Cut(source, ":")
		id, err := sourceBytes(server)
		if err != nil {
			return nil, err
		}
		data = append(data, id...)
		if tagged {
			data = append(data, byte(len(tag)<<1))
			data = append(data, tag...)
		}
		data = binary.LittleEndian.AppendUint64(data, uint64(len(s[source])))
		for _, interval := range s[source] {
			data = binary.LittleEndian.AppendUint64(data, uint64(interval.Start))
			data = binary.LittleEndian.AppendUint64(data, uint64(interval.Stop))
		}
	}
	return encodedSet{MysqlGTIDSet: &mysql.MysqlGTIDSet{}, text: s.String(), data: data}, nil
}

// encodedSet is a set for the library to send. It does nothing else with it
// where it neither decodes events nor connects again by itself.
type encodedSet struct {
	*mysql.MysqlGTIDSet
	text string
	data []byte
}

func (e encodedSet) String() string { return e.text }

func (e encodedSet) Encode() []byte { return e.data }

func sourceBytes(server string) ([]byte, error) {
	id, err := hex.DecodeString(strings.ReplaceAll(server, "-", ""))
	if err != nil || len(id) != 16 {
		return nil, fmt.Errorf("%q is not the UUID of a server", server)
	}
	return id, nil
}

// sourceText is the name of a source as it stands in sets.
func sourceText(id []byte, tag string) string {
	var b bytes.Buffer
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:16]} {
		if i > 0 {
			b.WriteByte('-')
		}
		b.WriteString(hex.EncodeToString(part))
	}
	if tag != "" {
		b.WriteByte(':')
		b.WriteString(tag)
	}
	return b.String()
}

// domains is a place in MariaDB's log: the last id of each domain.
type domains map[uint32]gtid

func parseDomains(text string) (place, error) {
	last := make(domains)
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		id, err := mysql.ParseMariadbGTID(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a GTID of MariaDB: %w", part, err)
		}
		last.add(gtid{domain: id.DomainID, server: id.ServerID, number: id.SequenceNumber})
	}
	return last, nil
}

func (d domains) String() string {
	var b strings.Builder
	for _, domain := range slices.Sorted(maps.Keys(d)) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d-%d-%d", domain, d[domain].server, d[domain].number)
	}
	return b.String()
}

func (d domains) add(id gtid) {
	if id.number != 0 {
		d[id.domain] = id
	}
}

func (d domains) clone() place { return maps.Clone(d) }

func (d domains) wire() (mysql.GTIDSet, error) { return mysql.ParseMariadbGTIDSet(d.String()) }
