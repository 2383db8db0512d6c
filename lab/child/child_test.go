//go:build linux

package child_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema/lab/child"
	"sema/lab/expect"
)

func init() {
	child.Role("echo", func(prefix string) error {
		for {
			line, err := child.Order()
			if err == io.EOF {
				fmt.Println("end", prefix)
				return nil
			}
			fmt.Println(prefix, line)
		}
	})
	child.Role("fails", func(code string) error { return errors.New(code) })
	child.Role("works", func(int) error {
		for {
			fmt.Println("at", time.Now().UnixNano())
			time.Sleep(time.Millisecond)
		}
	})
	child.Role("parent", func(int) error {
		cmd, err := child.Command("echo", "grandchild")
		if err != nil {
			return err
		}
		p, err := child.Start(cmd)
		if err != nil {
			return err
		}
		fmt.Println("started", p.PID())
		return p.Wait(context.Background())
	})
	child.Role("env", func(int) error {
		out, err := exec.Command("env").Output()
		fmt.Println(strings.Contains(string(out), "SEMA_LAB_CHILD"))
		return err
	})
}

func TestMain(m *testing.M) {
	child.Play()
	goleak.VerifyTestMain(m)
}

func TestAChildIsToldAndTells(t *testing.T) {
	p := child.Run(t, "echo", "said")
	for _, word := range []string{"one", "two"} {
		p.Tell(word)
		var got string
		if p.Says("said", &got); got != word {
			t.Errorf("said %q, want %q", got, word)
		}
	}
	p.Ends()
	p.Says("end", new(string))
	if _, err := p.Line(t.Context()); err != io.EOF {
		t.Errorf("error %v, want the end", err)
	}
	if got := string(p.Said()); got != "said one\nsaid two\nend said\n" {
		t.Errorf("said %q", got)
	}
	if u := p.Uses(); u.CPU <= 0 || u.Peak <= 0 {
		t.Errorf("used %+v", u)
	}
}

func TestWhatAChildEndsWith(t *testing.T) {
	for role, says := range map[string]string{"fails": "boom\n", "nobody's": "child: there is no role \"nobody's\"\n"} {
		var stderr bytes.Buffer
		cmd, err := child.Command(role, "boom")
		expect.OK(t, err)
		cmd.Stderr = &stderr
		p := child.RunCommand(t, cmd)
		var status *exec.ExitError
		if err := p.Wait(expect.Within(t)); !errors.As(err, &status) || status.ExitCode() != 1 || stderr.String() != says {
			t.Errorf("%s: %v, said %q", role, err, stderr.String())
		}
	}
	p := child.Run(t, "works", 0)
	p.Says("at", new(int64))
	p.Kill()
	if p.State().Success() || p.Signal(os.Interrupt) == nil {
		t.Error("killed, it lives")
	}
}

func TestAStoppedChildStandsStill(t *testing.T) {
	p := child.Run(t, "works", 0)
	p.Says("at", new(int64))
	if u := p.Uses(); u.CPU <= 0 || u.Resident <= 0 || u.Peak < u.Resident {
		t.Errorf("uses %+v", u)
	}
	expect.OK(t, p.Stop())
	expect.Until(t, "stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
		return err == nil && bytes.Contains(stat, []byte(") T "))
	})
	before := p.Uses()
	time.Sleep(50 * time.Millisecond)
	if after := p.Uses(); after.CPU-before.CPU > time.Millisecond { // what it was at as it was stopped may be counted late
		t.Errorf("stopped, it used %v", after.CPU-before.CPU)
	}
	went := time.Now().UnixNano()
	expect.OK(t, p.Continue())
	for at := int64(0); at < went; {
		p.Says("at", &at)
	}
}

func TestAChildDiesWithItsParent(t *testing.T) {
	p := child.Run(t, "parent", 0)
	var pid int
	p.Says("started", &pid)
	p.Kill()
	expect.Until(t, "the grandchild's end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

func TestWhatAChildStartsHasNoRole(t *testing.T) {
	child.Run(t, "env", 0).Says("false")
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	p := child.Run(t, "echo", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Line(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Line: %v", err)
	}
	if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
}
