// Package binlog has relays that follow the binary log of MySQL and MariaDB: of
// servers of its own, whose logs it can purge.
package binlog
