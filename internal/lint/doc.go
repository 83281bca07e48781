// Package lint holds the rules of the house that no general linter knows: who
// may import whom, how long a file may be, where a clock may be read, which
// modules there are. Each rule says in one sentence what to do instead, and
// each is proved by a small tree in which it must complain.
package lint
