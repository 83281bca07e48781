package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ownCPU is the processor time of this process, in seconds.
func ownCPU() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// ticks of processor time in a second, which Linux has everywhere.
const ticks = 100

// processCPU is the processor time of a process, all threads and no children.
func processCPU(pid int) (float64, error) { return statistics(pid, 11, 12) }

// statistics adds two of a process's times, which the kernel counts in ticks,
// and returns seconds. Their places are counted from the state's, which is 0.
func statistics(pid, one, other int) (float64, error) {
	text, err := os.ReadFile(filepath.Join(procfs, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may have spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= max(one, other) {
		return 0, fmt.Errorf("process %d: its statistics have %d fields", pid, len(fields))
	}
	first, err := strconv.ParseFloat(fields[one], 64)
	if err != nil {
		return 0, err
	}
	second, err := strconv.ParseFloat(fields[other], 64)
	return (first + second) / ticks, err
}

// treeCPU is the processor time of a process and its children, those that have
// ended among them, as of a server that has a process for each connection.
func treeCPU(pid int) (float64, error) {
	total, err := processCPU(pid)
	if err != nil {
		return 0, err
	}
	ended, err := statistics(pid, 13, 14)
	if err != nil {
		return 0, err
	}
	total += ended
	tasks, err := filepath.Glob(filepath.Join(procfs, strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return 0, err
	}
	for _, name := range tasks {
		text, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return 0, err
			}
			if used, err := processCPU(child); err == nil { // it may have ended
				total += used
			}
		}
	}
	return total, nil
}

const procfs = "/proc"

// peakMB is the most memory that a process ever had, in MB of 2^20 bytes.
func peakMB(process string) float64 {
	return kilobytes(filepath.Join(process, "status"), "VmHWM") / 1024
}

// residentMB is the memory that a process has.
func residentMB(process string) float64 {
	return kilobytes(filepath.Join(process, "status"), "VmRSS") / 1024
}

func kilobytes(name, field string) float64 {
	number, _, _ := strings.Cut(valueOf(name, field), " ")
	n, _ := strconv.ParseFloat(number, 64)
	return n
}

// valueOf returns what stands behind "field:" in a file of procfs.
func valueOf(name, field string) string {
	text, err := os.ReadFile(filepath.Join(procfs, name))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// load is the mean number of runnable processes in the minute before.
func load() string {
	text, _ := os.ReadFile(filepath.Join(procfs, "loadavg"))
	number, _, _ := strings.Cut(string(text), " ")
	return number
}
