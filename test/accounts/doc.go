// Package accounts holds the tests that reconcile tables of real databases, of
// one kind and of several.
package accounts
