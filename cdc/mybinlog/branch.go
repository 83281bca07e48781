package mybinlog

import (
	"encoding/binary"
	"time"

	"github.com/waybillhq/waybill/cdc"
)

const (
	// maxBranchIDs bounds how many ids of prepared branches are kept, of all
	// together. What goes beyond is found in the queue when its branch commits.
	maxBranchIDs = 1 << 20
	// maxBranches bounds how many prepared branches are known by name.
	maxBranches = 1 << 16
)

// branches are the prepared branches of distributed transactions. Their rows
// are logged when they are prepared, and count when they are committed, which
// is another transaction of the log.
type branches struct {
	known map[string]branch
	ids   int
}

type branch struct {
	ids         []int64
	undecodable int
}

// prepare ends a transaction that was prepared. In one phase it is committed.
func (d *decoder) prepare(raw, body []byte) error {
	name, one, ok := readPrepare(body)
	if one {
		return d.end(d.stamp(raw), false)
	}
	made := branch{ids: d.next.ids, undecodable: d.next.undecodable}
	d.next.ids, d.next.undecodable = nil, 0
	if ok && d.branches.keep(name, made) && len(made.ids) > 0 {
		d.next.prepared = name
	}
	return d.end(d.stamp(raw), false)
}

// readPrepare reads whether the transaction is committed as well, and the name
// of the branch: its format and two strings.
func readPrepare(body []byte) (name string, one, ok bool) {
	if len(body) < 13 {
		return "", false, false
	}
	format := int64(int32(binary.LittleEndian.Uint32(body[1:])))
	global, part := int(binary.LittleEndian.Uint32(body[5:])), int(binary.LittleEndian.Uint32(body[9:]))
	if data := body[13:]; global <= 64 && part <= 64 && len(data) >= global+part {
		name, ok = xid(data[:global], data[global:global+part], format), true
	}
	return name, body[0] != 0, ok
}

// keep returns whether the branch is known from now on.
func (b *branches) keep(name string, made branch) bool {
	if b.known == nil {
		b.known = make(map[string]branch)
	}
	if len(b.known) >= maxBranches || b.ids+len(made.ids) > maxBranchIDs {
		return false
	}
	b.known[name] = made
	b.ids += len(made.ids)
	return true
}

// tooMany reports whether the ids of the branch that is being read are more
// than can be kept.
func (b *branches) tooMany(ids []int64) bool { return b.ids+len(ids) > maxBranchIDs }

// resolve ends a branch. One that was prepared before the stream began, or was
// too much to keep, may have had any ids.
func (d *decoder) resolve(q query, at time.Time) error {
	found, known := d.branches.known[q.name]
	delete(d.branches.known, q.name)
	d.branches.ids -= len(found.ids)
	d.next.resolved = q.name
	if q.verb == xaRollback {
		return d.end(at, false)
	}
	if !known {
		d.next.undecodable++
	}
	d.next.undecodable += found.undecodable
	return d.tell(found.ids, at)
}

// tell hands over the ids of a branch, in parts where they are many.
func (d *decoder) tell(ids []int64, at time.Time) error {
	for len(ids) > cdc.MaxIDs {
		d.next.ids = ids[:cdc.MaxIDs:cdc.MaxIDs]
		ids = ids[cdc.MaxIDs:]
		if err := d.hand(); err != nil {
			return err
		}
	}
	d.next.ids = ids
	return d.end(at, false)
}
