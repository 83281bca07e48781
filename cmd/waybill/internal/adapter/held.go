package adapter

import (
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/waybillhq/waybill"
	"github.com/waybillhq/waybill/ops"
)

// Held returns the verbs on held events over a consumer's database.
func Held(st Store) (*ops.Held, error) {
	switch s := st.(type) {
	case ops.HeldStore[*sql.Tx]:
		return ops.NewHeld(s), nil
	case ops.HeldStore[pgx.Tx]:
		return ops.NewHeld(s), nil
	}
	return nil, &waybill.Error{Op: "open inbox", Err: errors.New("this kind of database keeps no events aside")}
}
