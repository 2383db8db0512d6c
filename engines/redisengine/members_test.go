package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// Foreign members of the zsets are dropped. The state's own field has the name "",
// so a member "" is neither permit nor ticket.
func TestUnknownMembersAreDropped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, e := server.Client(), patientAt(t, server.Addr())
	for _, keys := range [][2]string{{}, {"acme", "acme"}, {"acme", ""}} { // the key of the first ask, and of the others
		for _, zset := range []string{"holders", "waiters"} {
			for _, member := range []string{"", "x"} {
				name := fmt.Sprintf("%q %s %q", keys, zset, member)
				t.Run(name, func(t *testing.T) {
					d := session(t, e, name)
					d.do(protocol.Request{Kind: protocol.SetLimit, Limit: 1, Pin: true})
					ask := func(n uint64) protocol.Status {
						r := d.request(protocol.Ask, n, time.Hour)
						r.Wait, r.Target = true, protocol.ParseTarget(keys[min(n, 2)-1])
						return d.do(r)[0].Status
					}
					want := func(what string, is, want protocol.Status) {
						if is != want {
							t.Errorf("%s: %v, want %v", what, is, want)
						}
					}
					want("the first", ask(1), protocol.Granted)
					want("the second", ask(2), protocol.Queued)
					expect.OK(t, rdb.Do(expect.Within(t), "zadd", "sema:{"+name+"}:"+zset, 0, member).Err())
					want("the third", ask(3), protocol.Queued)
					for n := range uint64(3) {
						st, err := d.State(expect.Within(t))
						expect.OK(t, err)
						if st.Limit != 1 || !st.Pinned || st.Used != 1 || len(st.Waiters) != int(2-n) {
							t.Errorf("before release %d: %+v", n+1, st)
						}
						want("a release", d.do(d.request(protocol.Release, n+1, time.Hour))[0].Status, protocol.Done)
					}
					want("a newcomer", ask(4), protocol.Granted)
				})
			}
		}
	}
}
