// Package strategies shows one handler for each way to keep an effect from
// happening twice. The guide tells which to take, and what each leaves open.
package strategies
