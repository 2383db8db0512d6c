//go:build linux

package fileengine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// storm acquires and releases without end. While it holds the permit it also takes a lock
// of the kernel, which fails if another process holds a permit.
func storm(dir string) error {
	e, err := New(filepath.Join(dir, "sema"), nil)
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", 1)
	if err != nil {
		return err
	}
	if err := e.ensureInbox(false); err != nil {
		return err
	}
	// Opened last: when this process dies, Linux closes it before the pipe.
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
			return fmt.Errorf("two processes hold the permit: %v", err)
		}
		fmt.Println("held")
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		unlockFile(truth)
		if err := u.release(id); err != nil {
			return err
		}
	}
}

// Processes are killed at random moments, also during steps. Two processes never hold the
// permit at once, and the living ones continue.
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
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // the random moment of the kill
		i := rand.IntN(len(all))
		expect.OK(t, all[i].Signal(syscall.SIGKILL)) // fails if the process has ended by itself
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

// churn uses a semaphore of a group and removes it, again and again.
func churn(dir string) error {
	syscall.Umask(0o077)
	e, err := New(dir, &Options{Shared: true})
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", 1)
	for i := 0; err == nil && i < 300; i++ {
		var id engine.ID
		if id, err = u.acquire(); err == nil {
			err = u.release(id)
		}
		if err == nil {
			_, err = u.call(protocol.Request{Kind: protocol.Remove})
		}
	}
	return errors.Join(err, e.Close())
}
