package sqlite

import (
	"encoding/json"
	"strconv"

	"github.com/waybillhq/waybill/store"
)

// jsonInts and jsonTexts carry a list in one parameter, for json_each.
func jsonInts[T ~int | ~int64](values []T) string {
	text := make([]byte, 0, 2+8*len(values))
	text = append(text, '[')
	for i, value := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(value), 10)
	}
	return string(append(text, ']'))
}

func jsonTexts(values []string) string {
	text := []byte{'['}
	for i, value := range values {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendJSONText(text, value)
	}
	return string(append(text, ']'))
}

// appendJSONText appends a JSON string.
func appendJSONText(text []byte, value string) []byte {
	quoted, _ := json.Marshal(withoutNUL(value)) // a string always can be
	return append(text, quoted...)
}

func jsonLeases(leases []store.Lease) string {
	text := []byte{'['}
	for i, lease := range leases {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, int64(lease.Lane), 10)
		text = append(text, ',')
		text = strconv.AppendInt(text, lease.Fence, 10)
		text = append(text, ']')
	}
	return string(append(text, ']'))
}

func jsonSettled(changes []store.SettledChange) string {
	text := make([]byte, 0, 128*len(changes))
	text = append(text, '[')
	for i := range changes {
		c := &changes[i]
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, c.ID, 10)
		for _, value := range [...]string{c.EventID, string(c.Outcome), c.Via, c.PublishedTo, c.Note} {
			text = append(text, ',')
			text = appendJSONText(text, value)
		}
		text = append(text, ']')
	}
	return string(append(text, ']'))
}

func jsonFailed(changes []store.FailedChange) string {
	text := []byte{'['}
	for i := range changes {
		c := &changes[i]
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '[')
		text = strconv.AppendInt(text, c.ID, 10)
		text = append(text, ',')
		text = strconv.AppendBool(text, c.Dead)
		text = append(text, ',')
		text = strconv.AppendInt(text, int64(c.Retries), 10)
		text = append(text, ',')
		text = appendJSONText(text, after(c.RetryIn))
		text = append(text, ',')
		text = appendJSONText(text, c.Error)
		text = append(text, ']')
	}
	return string(append(text, ']'))
}
