module github.com/waybillhq/waybill

go 1.26
