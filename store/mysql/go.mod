module github.com/waybillhq/waybill/store/mysql

go 1.26

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/waybillhq/waybill v0.0.0
)

require filippo.io/edwards25519 v1.2.0 // indirect

replace github.com/waybillhq/waybill => ../..
