//go:build linux

package fileengine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// stamp is a job of flock's: it says when it ran.
func stamp() error {
	fmt.Println("granted", monotonic())
	time.Sleep(5 * time.Millisecond)
	fmt.Println("releases", monotonic())
	return nil
}

// locked is a process that waits in the kernel for a lock, as flock(1) does,
// without starting a program then.
func locked() error {
	f, err := os.OpenFile(filepath.Join(os.Getenv(dirVar), "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := lockFile(f, true); err != nil {
		return err
	}
	if err := stamp(); err != nil {
		return err
	}
	unlockFile(f)
	return nil
}

// chain runs n jobs that wait for one lock, and returns the sorted times from
// the end of one to the start of the next.
func chain(tb testing.TB, n int, job func(dir string) *child) []time.Duration {
	dir := tb.TempDir()
	lock := filepath.Join(dir, "lock")
	f, err := os.OpenFile(lock, os.O_RDWR|os.O_CREATE, 0o600)
	must(tb, err)
	_, err = lockFile(f, true)
	must(tb, err)
	all := make([]*child, n)
	for i := range all {
		all[i] = job(dir)
	}
	time.Sleep(500 * time.Millisecond)
	unlockFile(f)
	must(tb, f.Close())
	var spans [][2]int64
	for _, c := range all {
		spans = append(spans, [2]int64{c.says(tb, "granted"), c.says(tb, "releases")})
	}
	slices.SortFunc(spans, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	var gaps []time.Duration
	for i := 1; i < n; i++ {
		gaps = append(gaps, time.Duration(spans[i][0]-spans[i-1][1]))
	}
	slices.Sort(gaps)
	return gaps
}

// How long a hand-off takes, beside the same by flock(2), and by flock(1) with
// the start of a program.
func TestHandOffBesideFlock(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEMA_STRESS"))
	n = min(max(n, 12), 200)
	median := func(d []time.Duration) time.Duration { return d[len(d)/2] }
	flock := chain(t, n, func(dir string) *child { return startRole(t, "locked", dir, 1, 0) })
	program := chain(t, n, func(dir string) *child {
		t.Setenv(roleVar, "stamp")
		defer t.Setenv(roleVar, "")
		return startCommand(t, exec.Command("flock", filepath.Join(dir, "lock"), os.Args[0]))
	})
	sema, _ := run(t, n, 0)
	t.Logf("%d waiters: median hand-off %v; flock(2) %v; flock(1) with the start of a program %v", n, median(sema), median(flock), median(program))
}
