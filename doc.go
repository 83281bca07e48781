// Package waybill is the vocabulary of a transactional outbox: the [Event] and
// its id, its wire formats, and the errors.
package waybill
