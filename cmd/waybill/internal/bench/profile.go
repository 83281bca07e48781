package bench

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profile writes profiles of an arm into a folder until it is stopped: cpu.prof
// and allocs.prof.
func profile(dir string) (stop func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	runtime.MemProfileRate = 16 << 10
	cpu, err := os.Create(filepath.Join(dir, "cpu.prof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = cpu.Close()
		allocs, err := os.Create(filepath.Join(dir, "allocs.prof"))
		if err == nil {
			_ = pprof.Lookup("allocs").WriteTo(allocs, 0)
			_ = allocs.Close()
		}
	}, nil
}
