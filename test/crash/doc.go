// Package crash kills relays and consumers with SIGKILL at each named moment of
// their work, in a process of their own over a real database and a real broker,
// and shows that the next process needs no help: nothing is lost, nothing takes
// effect twice, and each key keeps its order.
package crash
