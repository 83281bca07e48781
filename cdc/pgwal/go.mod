module github.com/waybillhq/waybill/cdc/pgwal

go 1.26

require (
	github.com/jackc/pglogrepl v0.0.0-20251213150135-2e8d0df862c1
	github.com/jackc/pgx/v5 v5.13.0
	github.com/waybillhq/waybill v0.0.0
)

replace github.com/waybillhq/waybill => ../..
