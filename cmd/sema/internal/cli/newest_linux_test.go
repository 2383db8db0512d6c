package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
)

// Runs of one key that come while the first runs: the newest of them runs after it, and the others end and say who replaced
// them. The newest is the last that was queued, which may not be the last that was started.
func TestReplace(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		const runs = 200
		book := filepath.Join(t.TempDir(), "book")
		first := start(t, url, "run", "deploy", "--key", "main", "--replace", "--", "cat")
		l := look(t, url, "deploy")
		l.counts(1, 0)
		other := start(t, url, "run", "deploy", "--key", "branch", "--", "true")
		l.counts(1, 1)
		var jobs []*job
		for i := range runs {
			jobs = append(jobs, start(t, url, "run", "deploy", "--key", "main", "--replace", "--label", fmt.Sprint("run-", i), "--", "sh", "-c", `echo "$0 $SEMA_TOKEN" >>"$1"`, fmt.Sprint(i), book))
		}
		expect.Until(t, "the end of all but one", func() bool {
			ended := 0
			for _, j := range jobs {
				ended += len(j.done)
			}
			return ended == runs-1
		})
		l.counts(1, 2) // the newest, and the other key
		_ = first.stdin.Close()
		ran, replaced := 0, 0
		for _, j := range jobs {
			switch code := j.code(); {
			case code == 0:
				ran++
			case code == 75 && strings.Contains(j.stderr.String(), "replaced"): // a machine that is too slow to look does not say the name
				replaced++
			default:
				t.Errorf("exit code %d: %s", code, j.stderr.String())
			}
		}
		if ran != 1 || ran+replaced != runs || strings.Count(read(t, book), "\n") != ran {
			t.Errorf("%d ran, %d were replaced: %s", ran, replaced, read(t, book))
		}
		first.exits(0)
		other.exits(0)
		l.counts(0, 0)
	})
}

// A newer run stops the older one, and begins when all processes of the older one are gone; also where there is room for both.
func TestReplaceRunning(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		for _, limit := range []string{"1", "2"} {
			name := "running" + limit
			old := start(t, url, "run", "-n", limit, "--replace=running", name, "--", "sh", "-c", `trap "sleep 0.3; exit 0" TERM; echo begun; while :; do sleep 0.05; done`)
			old.expect("begun")
			newer := start(t, url, "run", "-n", limit, "--replace=running", name, "--", "sh", "-c", "echo newer")
			newer.expect("newer")
			if st := look(t, url, name).state(); len(st.Holders) > 1 {
				t.Errorf("both hold: %+v", st.Holders)
			}
			old.exits(76)
			old.says("stopping the command: replaced by a newer run: sh -c 'echo newer'")
			newer.exits(0)
		}
	})
}

// While --ready fails, others are served; the caller keeps its place among those that came later.
func TestReady(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		const others = 50
		dir := t.TempDir()
		flag, book := filepath.Join(dir, "flag"), filepath.Join(dir, "book")
		l := look(t, url, "ready")
		holder := start(t, url, "run", "ready", "--", "cat")
		l.counts(1, 0)
		j := start(t, url, "run", "--ready", `test -e "`+flag+`"`, "ready", "--", "sh", "-c", `echo first >>"$0"`, book)
		l.counts(1, 1)
		early := start(t, url, "run", "ready", "--", "true")
		l.counts(1, 2)
		next := start(t, url, "run", "ready", "--", "cat") // not in the pause of j, which may be over too soon
		l.counts(1, 3)
		_ = holder.stdin.Close()
		early.exits(0) // though it came later
		j.says("asking again in 1s")
		l.until("cat", func(st sema.State) bool { return len(st.Holders) == 1 && st.Holders[0].Client.Label == "cat" })
		var jobs []*job
		for range others {
			jobs = append(jobs, start(t, url, "run", "ready", "--", "sh", "-c", `echo other >>"$0"`, book))
		}
		l.until("all of them", func(st sema.State) bool { return len(st.Waiters) == others+1 })
		expect.OK(t, os.WriteFile(flag, nil, 0o600))
		_ = next.stdin.Close()
		j.exits(0)
		for _, other := range jobs {
			other.exits(0)
		}
		if text := read(t, book); !strings.HasPrefix(text, "first\n") || strings.Count(text, "\n") != others+1 {
			t.Errorf("the order is %q", text)
		}
		l.counts(0, 0)
	})
}

// A run that comes back after it was not ready does not take the place of a newer one.
func TestNotReadyAndReplaced(t *testing.T) {
	t.Parallel()
	url, flag := fileURL(t), filepath.Join(t.TempDir(), "flag")
	old := start(t, url, "run", "--replace=running", "--ready", `test -e "`+flag+`"`, "back", "--", "echo", "never")
	old.says("asking again in 1s")
	newer := start(t, url, "run", "--replace=running", "back", "--", "sh", "-c", "echo begun; read x")
	newer.expect("begun")
	expect.OK(t, os.WriteFile(flag, nil, 0o600))
	old.exits(75)
	_ = newer.stdin.Close()
	newer.exits(1) // of read
}

// A run that may not wait does not wait for the older one to end.
func TestReplaceRunningInTime(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	old := start(t, url, "run", "-n", "2", "intime", "--", "sh", "-c", `trap "" TERM; echo begun; read x`)
	old.expect("begun")
	j := start(t, url, "run", "-n", "2", "--wait", "0.2", "--replace=running", "intime", "--", "echo", "never")
	j.exits(75)
	j.says("the older run has not ended in time")
	old.exits(76)
}

// A signal ends --ready and sema, and a permit that is lost meanwhile runs nothing.
func TestReadyEnds(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		j := start(t, url, "run", "--ready", "echo checks; sleep 100 & wait", "ends", "--", "echo", "never")
		j.expect("checks")
		j.signal(syscall.SIGTERM)
		j.exits(143)
		j.dead()
		l := look(t, url, "ends")
		l.counts(0, 0)
		j = start(t, url, "run", "--ready", "echo checks; exec sleep 100", "ends", "--", "echo", "never")
		j.expect("checks")
		o := opened.Operator(t, l.engine, "ends")
		expect.OK(t, o.Revoke(t.Context(), l.counts(1, 0).Holders[0].ID))
		j.exits(76)
		j = start(t, url, "run", "--ready", `trap "exit 0" USR1; echo checks; while :; do sleep 0.05; done`, "ends", "--", "echo", "never")
		j.expect("checks")
		j.signal(syscall.SIGUSR1) // the check succeeds all the same
		j.exits(128 + int(syscall.SIGUSR1))
		flag := filepath.Join(t.TempDir(), "flag")
		j = start(t, url, "run", "--on-lost=warn", "--ready", "echo checks; until [ -e "+flag+" ]; do sleep 0.05; done", "ends", "--", "echo", "never")
		j.expect("checks")
		expect.OK(t, o.Revoke(t.Context(), l.counts(1, 0).Holders[0].ID))
		j.says("runs on without a permit")
		expect.OK(t, os.WriteFile(flag, nil, 0o600))
		j.exits(76)
		if out, _ := j.lines.ReadString(0); strings.Contains(out, "never") {
			t.Errorf("the command began without a permit: %s", out)
		}
		j = start(t, url, "run", "--no-wait", "--ready", "exit 3", "ends", "--", "echo", "never")
		j.exits(75)
		j.says("not ready in time: --ready ended with exit code 3")
		j = start(t, url, "run", "--ready", "echo checks; exec sleep 100", "--lease", "1s", "ends", "--", "echo", "never")
		j.expect("checks")
		j.signal(syscall.SIGKILL)
		j.dead()
		l.counts(0, 0)
	})
}

// Off a terminal a wait is told of if somebody asks for that, with each line once.
func TestNote(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	l := look(t, url, "note")
	holder := start(t, url, "run", "--label", "lane-3", "note", "--", "cat")
	l.counts(1, 0)
	silent := start(t, url, "run", "note", "--", "true")
	l.counts(1, 1)
	j := start(t, url, "run", "--note", "1h", "note", "--", "true")
	j.says(" for note: 1 of 1 held by lane-3@")
	j.says("), 1 before you")
	repeats := start(t, url, "run", "--note", "1s", "note", "--", "true")
	expect.Until(t, "three notes of another run, while nothing changes", func() bool { return strings.Count(repeats.stderr.String(), "2 before you") == 3 })
	if n := strings.Count(j.stderr.String(), "\n"); n != 1 || silent.stderr.String() != "" {
		t.Errorf("%d lines: %s; without a note: %s", n, j.stderr.String(), silent.stderr.String())
	}
	_ = holder.stdin.Close()
	silent.exits(0)
	j.exits(0)
	repeats.exits(0)
	start(t, url, "run", "--note=-1s", "note", "--", "true").exits(64)
	start(t, url, "run", "--pools=rpm=5/1m", "--take=rpm=3/1m", "note", "--", "true").exits(64) // a rate is not taken, but some of it
}
