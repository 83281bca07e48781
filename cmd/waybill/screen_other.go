//go:build !unix

package main

import "io"

// terminalWidth is not asked for here: COLUMNS says it.
func terminalWidth(io.Writer) int { return 0 }
