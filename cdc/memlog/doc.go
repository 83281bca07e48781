// Package memlog is a database's log in memory, for tests: it passes
// [github.com/waybillhq/waybill/cdc/cdctest], and can lose what it held.
package memlog
