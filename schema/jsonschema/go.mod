module github.com/waybillhq/waybill/schema/jsonschema

go 1.26.0

require (
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/waybillhq/waybill v0.0.0
)

require golang.org/x/text v0.14.0 // indirect

replace github.com/waybillhq/waybill => ../..
