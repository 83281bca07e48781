module github.com/waybillhq/waybill/examples

go 1.26

require github.com/waybillhq/waybill v0.0.0

replace github.com/waybillhq/waybill => ..
