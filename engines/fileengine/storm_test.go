//go:build linux

package fileengine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// namespaces are the options of unshare(1), and a script that runs in the new namespaces before
// the program. Each of two containers has a boot id and a clock of its own.
var namespaces = []struct{ name, options, script string }{
	{name: "host"},
	{"mount", "--mount", "mount --bind $dir/boot-id /proc/sys/kernel/random/boot_id"},
	{"no proc", "--mount", "mount -t tmpfs none /proc"},
	{"pid", "--pid --fork --kill-child --mount-proc", ""},
	{"user", "--user --map-root-user", ""},
	{"time", "--time --monotonic 3600 --boottime 3600", ""},
	{"time without proc", "--time --monotonic 86400 --mount", "mount -t tmpfs none /proc"},
}

// inNamespaces starts this program in a role, in the namespaces of namespaces[i]. Users other than
// root need a user namespace for the others.
func inNamespaces(tb testing.TB, i int, dir, role string, job any) *child.Tested {
	tb.Helper()
	cmd, err := child.Command(role, job)
	expect.OK(tb, err)
	if n := namespaces[i]; n.options != "" {
		path, err := exec.LookPath("unshare")
		expect.OK(tb, err)
		options := strings.Fields(n.options)
		if os.Getuid() != 0 {
			options = append(options, "--map-root-user")
		}
		cmd.Args = append([]string{"unshare"}, append(options, "sh", "-ec", "dir=$1\n"+n.script+"\nexec \"$0\"", cmd.Path, dir)...)
		cmd.Path = path
	}
	return child.RunCommand(tb, cmd)
}

// Processes share a limit whatever namespaces each of them is in: its boot id, its clock and its
// users may be others. SEMA_STRESS_NAMESPACES sets how many permits each process takes.
func TestNamespacesShareALimit(t *testing.T) {
	t.Parallel()
	rounds, _ := strconv.Atoi(os.Getenv("SEMA_STRESS_NAMESPACES"))
	for i, a := range namespaces {
		for j, b := range namespaces[:i+1] {
			t.Run(a.name+" and "+b.name, func(t *testing.T) {
				dir := t.TempDir()
				expect.OK(t, os.WriteFile(filepath.Join(dir, "boot-id"), []byte("6ba7b810-9dad-11d1-80b4-00c04fd430c8\n"), 0o600))
				both := []*child.Tested{inNamespaces(t, i, dir, stormRole, dir), inNamespaces(t, j, dir, stormRole, dir)}
				for _, c := range both {
					c.Says("held")
				}
				for range max(rounds, 20) { // of each, while the other goes on
					for _, c := range both {
						c.Says("held")
					}
				}
			})
		}
	}
}
