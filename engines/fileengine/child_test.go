//go:build linux

package fileengine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// The roles of processes. Their job is a directory, except that of a holder.
const (
	holderRole   = "fileengine holder"
	stormRole    = "fileengine storm"
	pinRole      = "fileengine pin"
	churnRole    = "fileengine churn"
	fullDiskRole = "fileengine full disk"
)

func init() {
	child.Role(holderRole, holder.play)
	child.Role(stormRole, storm)
	child.Role(pinRole, pin)
	child.Role(churnRole, churn)
	child.Role(fullDiskRole, fullDisk)
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// pin does as an operator of a group.
func pin(dir string) error {
	e, err := New(dir, &Options{Shared: true})
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", 1)
	if err == nil {
		_, err = u.call(protocol.Request{Kind: protocol.SetLimit, Limit: 1, Pin: true})
	}
	return errors.Join(err, e.Close())
}

// holder waits for a permit, holds it for a time or until an order, and releases it. It
// reports each of these steps.
type holder struct {
	Dir    string
	Limit  int
	Hold   time.Duration // negative: until an order
	Life   bool          // another process has the file of Engine.Life open
	Shared bool
}

func (h holder) play() error {
	e, err := New(h.Dir, &Options{Shared: h.Shared})
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", h.Limit)
	if err != nil {
		return err
	}
	r := u.ask(true)
	reply, err := u.call(r)
	if err != nil {
		return err
	}
	if reply.Answers[0].Status == protocol.Queued {
		fmt.Println("queued")
		for err = errAskAgain; err == errAskAgain; {
			if err = u.await(r.ID); err == errAskAgain {
				var again protocol.Reply
				if again, err = u.call(r); err == nil && again.Answers[0].Status == protocol.Queued {
					err = errAskAgain
				}
			}
		}
		if err != nil {
			return err
		}
	}
	if h.Life {
		life, err := e.Life()
		if err != nil {
			return err
		}
		guard := exec.Command("sleep", "1000")
		guard.ExtraFiles = []*os.File{life}
		if err := guard.Start(); err != nil {
			return err
		}
		fmt.Println("guard", guard.Process.Pid)
	}
	fmt.Println("granted", monotonic())
	if h.Hold >= 0 {
		time.Sleep(h.Hold)
	} else if _, err := child.Order(); err != nil {
		return err
	}
	fmt.Println("releases", monotonic())
	if err := u.release(r.ID); err != nil {
		return err
	}
	return e.Close()
}

// process is a child process of a test.
type process struct{ *child.Tested }

// start starts a holder that holds its permit until an order.
func start(tb testing.TB, dir string, limit int) process {
	tb.Helper()
	return process{child.Run(tb, holderRole, holder{Dir: dir, Limit: limit, Hold: -1})}
}

// granted waits until the process reports its grant, and returns the time of the grant.
func (p process) granted() (at int64) { p.Says("granted", &at); return at }

// released waits until the process reports its release, and returns the time of that.
func (p process) released() (at int64) { p.Says("releases", &at); return at }

// kill kills the process without waiting for its end.
func (p process) kill(tb testing.TB) { tb.Helper(); expect.OK(tb, p.Signal(syscall.SIGKILL)) }
