package redisengine

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/internal/fixture/versions"
)

// releaseRole is the role of a process of this release, or of the next one.
const releaseRole = "redisengine release"

type release struct {
	URL  string
	Next bool
	Work versions.Work
}

func init() {
	child.Role(releaseRole, func(r release) error {
		o, err := redis.ParseURL(r.URL)
		if err != nil {
			return err
		}
		if r.Next {
			beOfTheNextRelease()
		}
		rdb := redis.NewClient(o)
		e, err := New(rdb, nil)
		if err != nil {
			return err
		}
		if r.Next {
			e.ofTheNextRelease()
		}
		return errors.Join(r.Work.Serve(e), e.Close(), rdb.Close())
	})
}

// Processes of this release and of the next one share a semaphore during an upgrade and
// back, without any error. The state gets the newer layout when the older release was not
// seen for a while, and the older layout when that release is back.
func TestReleasesShareASemaphore(t *testing.T) {
	t.Parallel()
	stall.Run(t, func(t *stall.Case) { // leases are of 3 s
		server := redistest.Start(t)
		rdb := server.Client()
		crew := versions.NewCrew(t, versions.Work{Name: "x", Limit: 3, Callers: 4, Keeps: 1})
		start := func(next bool) func(versions.Work) *exec.Cmd {
			return func(w versions.Work) *exec.Cmd {
				cmd, err := child.Command(releaseRole, release{server.URL(), next, w})
				expect.OK(t, err)
				return cmd
			}
		}
		inLayout := func(mark string) func() bool {
			return func() bool {
				raw, err := rdb.HGet(expect.Within(t), "sema:{x}:state", "").Result()
				expect.OK(t, err)
				return raw[:4] == mark
			}
		}
		first, second := crew.Join(start(false)), crew.Join(start(false))
		third := crew.Join(start(true)) // the upgrade begins
		first.Leave()
		fourth := crew.Join(start(true))
		if !inLayout("sem3")() {
			t.Error("the older release cannot read the state that it uses")
		}
		second.Leave()
		expect.Until(t, "the state has the newer layout", inLayout("sem5"))

		fifth := crew.Join(start(false)) // is served, although it cannot read the newer layout
		if !inLayout("sem3")() {
			t.Error("the older release was served, and cannot read the state")
		}
		third.Leave()
		sixth := crew.Join(start(false))
		fourth.Leave()
		fifth.Leave()
		sixth.Leave()
		crew.Judge()
	})
}
