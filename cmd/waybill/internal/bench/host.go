package bench

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Host is the machine that the figures are of.
type Host struct {
	System    string  `json:"system"`                    // operating system and architecture
	Kernel    string  `json:"kernel,omitempty"`          // its release
	Processor string  `json:"processor,omitempty"`       // as it calls itself
	Cores     int     `json:"cores"`                     // that this process may use
	MemoryGB  float64 `json:"memory_gb,omitempty"`       // of the machine
	Load      float64 `json:"load_at_start,omitempty"`   // runnable processes, mean of the minute before: above 0, others were at work
	LoadEnd   float64 `json:"load_at_the_end,omitempty"` // the same when the last run was over, this command included
}

// Versions are what worked together.
type Versions struct {
	Waybill string `json:"waybill"` // release, or the commit that was built
	Go      string `json:"go"`      // of the compiler
	Store   string `json:"store"`   // kind and version of the database
	Broker  string `json:"broker"`  // kind and version of the broker
}

func newHost() Host {
	return Host{
		System: runtime.GOOS + "/" + runtime.GOARCH, Kernel: firstLine("sys/kernel/osrelease"), Processor: valueOf("cpuinfo", "model name"),
		Cores: runtime.GOMAXPROCS(0), MemoryGB: round(kilobytes("meminfo", "MemTotal")/(1<<20), 1), Load: load(),
	}
}

func newVersions() Versions {
	v := Versions{Waybill: "(devel)", Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v.Waybill = info.Main.Version
		}
	}
	return v
}

// procfs is where Linux tells of itself; elsewhere nothing is found there.
const procfs = "/proc"

func firstLine(name string) string {
	text, err := os.ReadFile(filepath.Join(procfs, name))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// valueOf returns what stands behind "field:" in a file of procfs.
func valueOf(name, field string) string {
	file, err := os.Open(filepath.Join(procfs, name))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(key) == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kilobytes reads a value such as "123 kB".
func kilobytes(name, field string) float64 {
	number, _, _ := strings.Cut(valueOf(name, field), " ")
	n, _ := strconv.ParseFloat(number, 64)
	return n
}

func load() float64 {
	number, _, _ := strings.Cut(firstLine("loadavg"), " ")
	n, _ := strconv.ParseFloat(number, 64)
	return n
}

// peakMB is the most memory that this process ever had, in MB of 2^20 bytes,
// or 0 where the system does not tell.
func peakMB() float64 { return kilobytes("self/status", "VmHWM") / 1024 }
