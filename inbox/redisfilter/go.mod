module github.com/waybillhq/waybill/inbox/redisfilter

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/redis/rueidis v1.0.79
	github.com/waybillhq/waybill v0.0.0
)

require (
	github.com/yuin/gopher-lua v1.1.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/waybillhq/waybill => ../..
