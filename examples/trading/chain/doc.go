// Package chain is what happens between a payment and the books:
//
//	payment callback -> orders: PAYING to PAID, one OrderPaid
//	  -> fulfilment: a coupon is granted, one OrderFulfilled, by its own outbox
//	       -> ledger
//	  -> points
//	  -> ledger
//
// The provider calls back several times, the broker delivers several times, and
// each effect is there once. The package knows no database and no broker: its
// handlers run over SQLite, PostgreSQL, MySQL and MariaDB.
package chain
