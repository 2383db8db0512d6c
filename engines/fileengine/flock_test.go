//go:build linux

package fileengine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

// stamp is a program for flock(1): it prints the time.
func stamp() error {
	fmt.Println("granted", monotonic())
	time.Sleep(5 * time.Millisecond)
	fmt.Println("releases", monotonic())
	return nil
}

// locked waits in the kernel for a lock, as flock(1) does, but starts no program.
func locked(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	fmt.Println("waits")
	if _, err := lockFile(f, true); err != nil {
		return err
	}
	if err := stamp(); err != nil {
		return err
	}
	unlockFile(f)
	return nil
}

// chain runs n jobs that wait for one lock. It returns the sorted times between the end of
// one job and the start of the next.
func chain(tb testing.TB, n int, job func(dir string) process) []time.Duration {
	dir := tb.TempDir()
	lock := filepath.Join(dir, "lock")
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	expect.OK(tb, err)
	_, err = lockFile(f, true)
	expect.OK(tb, err)
	all := make([]process, n)
	for i := range all {
		all[i] = job(dir)
	}
	time.Sleep(500 * time.Millisecond) // until they wait
	unlockFile(f)
	expect.OK(tb, f.Close())
	var spans [][2]int64
	for _, c := range all {
		spans = append(spans, [2]int64{c.granted(), c.released()})
	}
	slices.SortFunc(spans, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	var gaps []time.Duration
	for i := 1; i < n; i++ {
		gaps = append(gaps, time.Duration(spans[i][0]-spans[i-1][1]))
	}
	slices.Sort(gaps)
	return gaps
}

// BenchmarkHandOff measures a hand-off between processes. It compares flock(2), and flock(1)
// with the start of a program. SEMA_STRESS sets the number of processes.
func BenchmarkHandOff(b *testing.B) {
	n := max(processes(b), 12)
	report := func(b *testing.B, took []time.Duration) {
		slices.Sort(took)
		b.ReportMetric(0, "ns/op")
		for name, d := range map[string]time.Duration{"median": took[len(took)/2], "p90": took[len(took)*9/10], "longest": took[len(took)-1]} {
			b.ReportMetric(float64(d.Microseconds()), name+"-µs")
		}
	}
	b.Run("sema", func(b *testing.B) {
		for b.Loop() {
			report(b, handOffs(b, queue(b, n)))
		}
	})
	b.Run("flock2", func(b *testing.B) {
		for b.Loop() {
			report(b, chain(b, min(n, 200), func(dir string) process {
				p := process{child.Run(b, lockedRole, dir)}
				p.Says("waits")
				return p
			}))
		}
	})
	b.Run("flock1", func(b *testing.B) {
		for b.Loop() {
			report(b, chain(b, min(n, 200), func(dir string) process {
				cmd, err := child.Command(stampRole, dir)
				expect.OK(b, err)
				cmd.Args = []string{"flock", filepath.Join(dir, "lock"), cmd.Path}
				cmd.Path = "/usr/bin/flock"
				return process{child.RunCommand(b, cmd)}
			}))
		}
	})
}
