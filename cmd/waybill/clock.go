package main

import "time"

// now is this process's clock: for ages that people give, and for the doctor,
// who compares it with the database's.
func now() time.Time { return time.Now() }
