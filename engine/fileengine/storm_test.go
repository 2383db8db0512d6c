//go:build linux

package fileengine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// storm acquires and releases without end. While it holds the permit it has a
// lock of the kernel's, which tells whether anybody else holds one.
func storm() error {
	dir := os.Getenv(dirVar)
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
	kills, _ := strconv.Atoi(os.Getenv("SEMA_STRESS_KILLS"))
	if kills == 0 {
		kills = 60
	}
	dir := t.TempDir()
	var all [8]*child
	for i := range all {
		all[i] = startRole(t, "storm", dir, 1, 0)
	}
	for range kills {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		i := rand.IntN(len(all))
		for len(all[i].lines) > 0 {
			all[i].says(t, "held")
		}
		all[i].kill(t)
		go all[i].gone()
		all[i] = startRole(t, "storm", dir, 1, 0)
	}
	for range 20 {
		for _, c := range all {
			c.says(t, "held")
		}
	}
}
