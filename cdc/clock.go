package cdc

import "time"

func pause(d time.Duration) { time.Sleep(d) }
