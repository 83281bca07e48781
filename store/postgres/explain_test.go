package postgres_test

import (
	"context"

	"github.com/waybillhq/waybill/store/postgres"
	"github.com/waybillhq/waybill/store/storetest"
)

func explain(ctx context.Context, st *postgres.Store, statement storetest.HotStatement) (storetest.Plan, error) {
	return storetest.Plan{Why: "later"}, nil
}
