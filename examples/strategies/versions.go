package strategies

import (
	"encoding/json"
	"errors"

	"github.com/waybillhq/waybill/inbox"
)

// Versions are the schema versions that handlers of payments understand: version
// 2 has cents, where version 1 had whole euros.
func Versions() map[string]inbox.Schema {
	return map[string]inbox.Schema{"PaymentReceived": {Version: 2, Upcasts: map[int]inbox.Upcast{
		1: inbox.UpcastObject(func(object map[string]json.RawMessage) error {
			euros, there := object["euros"]
			if !there {
				return errors.New("no euros")
			}
			object["amount"] = append(euros, "00"...)
			delete(object, "euros")
			return nil
		}),
	}}}
}
