//go:build linux && (amd64 || arm64)

package early_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"sema/cmd/sema/internal/early"
	"sema/internal/fixture/expect"
)

// The test binary, started under a low soft limit, prints what it found.
func TestMain(m *testing.M) {
	if os.Getenv("SEMA_TEST_LIMIT") != "" {
		fmt.Println(early.Known, early.Limit[0])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLimitIsReadBeforeGoRaisesIt(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a process")
	}
	exe, err := os.Executable()
	expect.OK(t, err)
	cmd := exec.Command("sh", "-c", `ulimit -S -n 77 && exec "$0"`, exe)
	cmd.Env = append(os.Environ(), "SEMA_TEST_LIMIT=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output() // on the other one, a run that measures coverage complains
	if err != nil || strings.TrimSpace(string(out)) != "true 77" {
		t.Fatalf("%v: %s", err, out)
	}
	var now syscall.Rlimit
	expect.OK(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now))
	if now.Max != early.Limit[1] {
		t.Errorf("hard limit %d, found %d", now.Max, early.Limit[1])
	}
}
