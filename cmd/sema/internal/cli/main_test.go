package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"sema/cmd/sema/internal/cli"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The test binary is also the program: every test runs it as sema in processes
// of its own, the way users do.
func TestMain(m *testing.M) {
	// Under the race detector a process would sleep for a second at its end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	// The parent of the tests may ignore signals, as nohup does, and commands
	// would inherit that. Catching a signal here gives commands the default
	// again.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) && filepath.Base(os.Args[0]) != "sema" {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	if filepath.Base(os.Args[0]) != "sema" {
		flag.Parse()
		if err := flag.Set("test.parallel", "8"); err != nil { // they mostly wait
			panic(err)
		}
	}
	testscript.Main(m, map[string]func(){"sema": func() {
		code := cli.Main(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
		// A client that found no server dials for a second after it was closed, as does one that another connection became free for.
		// A lock that another process has is waited for in the kernel, until the process ends.
		// A connection that is given up is closed in the background by pgx.
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"), goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).queuedNewConn.func2"),
			goleak.IgnoreAnyFunction("sema/engines/fileengine.(*log).enter"), goleak.IgnoreAnyFunction("sema/engines/fileengine.(*log).look.func1"), goleak.IgnoreAnyFunction("sema/engines/fileengine.(*log).lock.func1"),
			goleak.IgnoreAnyFunction("sema/engines/fileengine.(*log).close"), goleak.IgnoreAnyFunction("sema/engines/fileengine.(*log).died"), goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1")); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines outlive Main:", err)
			os.Exit(99)
		}
		cli.Exit(code)
	}, "careless-init": carelessInit})
}

// carelessInit is a program that runs a script. As the first process of a container it becomes the parent of
// orphans, and does not take notice of their ends. When no other process runs, it lists those that remain as zombies.
func carelessInit() {
	cmd := exec.Command("sh", "-c", os.Args[1])
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run() // the script prints what matters
	for end := time.Now().Add(expect.Patience); ; time.Sleep(2 * time.Millisecond) {
		files, _ := filepath.Glob("/proc/[0-9]*/stat")
		var zombies, running []string
		for _, file := range files {
			text, _ := os.ReadFile(file) // PID (NAME) STATE ...
			stat := string(text)
			name, state, _ := strings.Cut(stat[strings.Index(stat, " ")+1:], ") ")
			switch {
			case stat == "" || strings.HasPrefix(stat, strconv.Itoa(os.Getpid())+" "):
			case strings.HasPrefix(state, "Z"):
				zombies = append(zombies, name+")")
			default:
				running = append(running, name+")")
			}
		}
		if len(running) == 0 || time.Now().After(end) {
			fmt.Println("running", running, "zombies", zombies)
			return
		}
	}
}

// onEngines runs a test on the file engine and on Redis.
func onEngines(t *testing.T, test func(t *testing.T, url string)) {
	ofProcesses(t)
	t.Parallel()
	for name, url := range map[string]func(t *testing.T) string{
		"file":  func(t *testing.T) string { return fileURL(t) },
		"redis": func(t *testing.T) string { return redistest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, url(t))
		})
	}
}

// ofProcesses marks a test that runs the program.
func ofProcesses(tb testing.TB) {
	if testing.Short() {
		tb.Skip("it runs the program")
	}
}

// fileURL is a directory for semaphores. It is removed when the last process
// has left it, which may be a moment after the command's end.
func fileURL(tb testing.TB) string {
	ofProcesses(tb)
	dir, err := os.MkdirTemp("", "sema-test")
	expect.OK(tb, err)
	tb.Cleanup(func() { expect.Until(tb, "the end of the directory", func() bool { return os.RemoveAll(dir) == nil }) })
	return "file://" + filepath.ToSlash(dir)
}

func TestScripts(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		testscript.Run(t, testscript.Params{
			Dir:                 "testdata/script",
			RequireExplicitExec: true,
			Setup: func(env *testscript.Env) error {
				// Scripts share the engine and so do not share names.
				env.Setenv("SEMA_URL", url)
				env.Setenv("GORACE", os.Getenv("GORACE"))
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		})
	})
}

// exits is the script command "exits CODE PROGRAM [ARG...]": the program ends
// with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	code := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var status *exec.ExitError
		if !errors.As(err, &status) {
			ts.Fatalf("%v", err)
		}
		code = fmt.Sprint(shellCode(status.ProcessState))
	}
	if code != args[0] {
		ts.Fatalf("%v: exit code %s, want %s", args[1:], code, args[0])
	}
}

// shellCode is what a shell makes of a process's end: 128+n for signal n.
func shellCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
