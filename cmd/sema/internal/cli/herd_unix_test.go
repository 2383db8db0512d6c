//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// As cron starts them at minute 0: all come in the same moment, and none of them fails for it.
func TestAHerdRuns(t *testing.T) {
	ofProcesses(t)
	t.Run("file", func(t *testing.T) { herd(t, 1000/herdPart, fileURL(t)) })
	t.Run("redis", func(t *testing.T) { herd(t, 1000/herdPart, redistest.Start(t).URL()) })
	t.Run("serve", func(t *testing.T) { herd(t, 300/herdPart, serve(t, "--url", redistest.Start(t).URL()).url) })
	t.Run("postgres", func(t *testing.T) {
		db, err := local.Postgres(expect.Within(t), "-c", "max_connections=400")
		expect.OK(t, err)
		t.Cleanup(db.Stop)
		ok(t, "SEMA_URL="+db.Address, "migrate")
		herd(t, 300/herdPart, db.Address)
	})
}

// herd starts so many commands when all of their shells are there.
func herd(t *testing.T, n int, url string) {
	t.Helper()
	gate, open, err := os.Pipe()
	expect.OK(t, err)
	ran := filepath.Join(t.TempDir(), "ran")
	var all sync.WaitGroup
	var mu sync.Mutex
	failed := map[string]int{}
	for range n {
		cmd := exec.Command("sh", "-c", `read x; exec sema run -n 8 herd -- sh -c 'sleep 0.05; echo ran >> "$0"' "$0"`, ran)
		cmd.Env = append(os.Environ(), "SEMA_URL="+url)
		cmd.Stdin = gate
		child.DieWithParent(cmd) // a thousand orphans would starve the machine
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		expect.OK(t, cmd.Start())
		all.Go(func() {
			if err := cmd.Wait(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[fmt.Sprint(err, ": ", said.String())]++
			}
		})
	}
	expect.OK(t, gate.Close())
	expect.OK(t, open.Close())
	all.Wait()
	for what, times := range failed {
		t.Errorf("%d of %d: %s", times, n, what)
	}
	lines, err := os.ReadFile(ran)
	expect.OK(t, err)
	if got := strings.Count(string(lines), "ran\n"); got != n {
		t.Errorf("%d of %d ran", got, n)
	}
}
