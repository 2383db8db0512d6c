package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
)

const crowd = 40

// witness is a command that writes down its start and its end, and stays until
// its input ends. The lines of an append-only file are in the order in which
// they were written.
const witness = `echo "start $1 $SEMA_TOKEN" >>"$0"; read x; echo "end $1 $SEMA_TOKEN" >>"$0"`

// Forty processes of "sema run -n 3": never more than three commands at once,
// all of them run, and in the order in which they came.
func TestFortyProcesses(t *testing.T) {
	onEngines(t, func(t *testing.T, url string) {
		t.Run("one by one", func(t *testing.T) {
			t.Parallel()
			// One permit at a time changes hands, so the order of starts is exact.
			l, jobs, book := gather(t, url, "exact")
			for i, j := range jobs {
				l.until("its start", func(sema.State) bool { return strings.Contains(read(t, book), fmt.Sprintf("start %d ", i)) })
				if i+3 > crowd {
					continue
				}
				_ = j.stdin.Close()
				j.exits(0)
				if i+3 < crowd {
					l.until("the next start", func(sema.State) bool { return starts(read(t, book)) == i+4 })
				}
			}
			for _, j := range jobs[crowd-2:] {
				_ = j.stdin.Close()
				j.exits(0)
			}
			judge(t, read(t, book), true)
		})
		t.Run("all at once", func(t *testing.T) {
			t.Parallel()
			_, jobs, book := gather(t, url, "free")
			expect.Until(t, "the start of three", func() bool { return starts(read(t, book)) == 3 })
			for _, j := range jobs {
				_ = j.stdin.Close()
			}
			for _, j := range jobs {
				j.exits(0)
			}
			judge(t, read(t, book), false)
		})
	})
}

// A command that is gone when its turn comes is an error, as it is before.
func TestCommandThatVanishesWhileWaiting(t *testing.T) {
	t.Parallel()
	url, script := fileURL(t), filepath.Join(t.TempDir(), "script")
	expect.OK(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700))
	l := look(t, url, "vanish")
	holder := start(t, url, "run", "vanish", "--", "cat")
	l.counts(1, 0)
	j := start(t, url, "run", "vanish", "--", script)
	l.counts(1, 1)
	expect.OK(t, os.Remove(script))
	_ = holder.stdin.Close()
	j.exits(127)
	j.says("no such file or directory")
	l.counts(0, 0)
}

// gather starts the crowd, one after another as they are seen to hold or wait.
func gather(t *testing.T, url, name string) (*looker, []*job, string) {
	l, book := look(t, url, name), filepath.Join(t.TempDir(), "book")
	expect.OK(t, os.WriteFile(book, nil, 0o600))
	var jobs []*job
	for i := range crowd {
		jobs = append(jobs, start(t, url, "run", "-n", "3", name, "--", "sh", "-c", witness, book, strconv.Itoa(i)))
		l.until("its arrival", func(st sema.State) bool { return len(st.Holders)+len(st.Waiters) == i+1 })
	}
	return l, jobs, book
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	expect.OK(t, err)
	return string(text)
}

func starts(book string) int { return strings.Count(book, "start ") }

// judge reads the book. Tokens tell the order of grants; the starts follow it
// exactly when grants come one at a time.
func judge(t *testing.T, book string, exact bool) {
	t.Helper()
	running, most, next := 0, 0, 0
	tokens := map[int]int64{}
	for line := range strings.Lines(book) {
		var word string
		var who int
		var token int64
		if _, err := fmt.Sscan(line, &word, &who, &token); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if word == "end" {
			running--
			continue
		}
		if exact && next >= 3 && who != next {
			t.Errorf("number %d started as number %d", who, next)
		}
		next++
		running++
		most = max(most, running)
		tokens[who] = token
	}
	if most != 3 {
		t.Errorf("at most %d ran at once, want 3", most)
	}
	if len(tokens) != crowd || running != 0 {
		t.Errorf("%d of %d ran, %d did not end", len(tokens), crowd, running)
	}
	for i := 1; i < crowd; i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("number %d was granted before number %d", i, i-1)
		}
	}
}
