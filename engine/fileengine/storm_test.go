//go:build linux

package fileengine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

// storm acquires and releases without end. While it holds the permit it has a
// lock of the kernel's, which tells whether anybody else holds one.
func storm(dir string) error {
	e, err := New(filepath.Join(dir, "sema"), nil)
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", 1)
	if err != nil {
		return err
	}
	if err := e.revive(false); err != nil {
		return err
	}
	// Opened last: Linux drops it before the pipe when this process dies.
	truth, err := os.OpenFile(filepath.Join(dir, "truth"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for {
		id, err := u.acquire()
		if err != nil {
			return err
		}
		if ok, err := lockFile(truth, false); !ok || err != nil {
			return fmt.Errorf("a permit while another holds one: %v", err)
		}
		fmt.Println("held")
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		unlockFile(truth)
		if err := u.release(id); err != nil {
			return err
		}
	}
}

// Processes are killed at random moments, in the middle of steps too. Never do
// two hold the permit, and those who live go on.
func TestStormOfKills(t *testing.T) {
	t.Parallel()
	kills, _ := strconv.Atoi(os.Getenv("SEMA_STRESS_KILLS"))
	if kills == 0 {
		kills = 60
	}
	dir := t.TempDir()
	var all [8]*child.Tested
	for i := range all {
		all[i] = child.Run(t, stormRole, dir)
	}
	for range kills {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // the moment is the input
		i := rand.IntN(len(all))
		expect.OK(t, all[i].Signal(syscall.SIGKILL)) // unless it has ended by itself
		all[i] = child.Run(t, stormRole, dir)
	}
	for _, c := range all {
		before := len(c.Said())
		expect.Until(t, "twenty more permits of each process", func() bool {
			select {
			case <-c.Done():
				t.Fatal("a process has ended")
			default:
			}
			return len(c.Said()) >= before+20*len("held\n")
		})
	}
}
