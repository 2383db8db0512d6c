package ground

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"sema/internal/fixture/redistest"
)

// someOf is of how many pieces one is hit, where hitting all would only be an outage.
const someOf = 4

// wireFault is something that happens between workers and servers.
type wireFault struct {
	name, note string
	turn       func(t *redistest.Trouble, on bool)
	at         func(*redistest.Proxy) // what happens once, at the beginning
	slow       bool                   // what passes takes longer, or waits for the end
}

// when is a value that there is while a fault is on.
func when[V any](on bool, v V) (is V) {
	if on {
		is = v
	}
	return is
}

var wireFaults = []wireFault{
	{
		"network: silence", "connections stay open, nothing passes; what was sent arrives at the end",
		func(t *redistest.Trouble, on bool) { t.Silent = on }, nil, true,
	},
	{
		"network: refused", "all connections are closed, and new ones at once",
		func(t *redistest.Trouble, on bool) { t.Refuse = on }, (*redistest.Proxy).DropAll, false,
	},
	{
		"network: replies lost", "one in four: the connection is closed in its place, the request is carried out",
		func(t *redistest.Trouble, on bool) { t.LoseReplies = when(on, someOf) }, nil, false,
	},
	{
		"network: requests lost", "one in four: the connection is closed, the request is not carried out",
		func(t *redistest.Trouble, on bool) { t.LoseRequests = when(on, someOf) }, nil, false,
	},
	{
		"network: latency", "200 ms each way, and up to 300 ms more",
		func(t *redistest.Trouble, on bool) {
			t.Latency, t.Jitter = when(on, 200*time.Millisecond), when(on, 300*time.Millisecond)
		}, nil, true,
	},
	{
		"network: slices", "32 bytes at a time",
		func(t *redistest.Trouble, on bool) { t.Slice = when(on, 32) }, nil, true,
	},
	{
		"network: bandwidth", "20 kB a second, each way of each connection",
		func(t *redistest.Trouble, on bool) { t.Rate = when(on, 20_000) }, nil, true,
	},
	{
		"network: late copies", "one request in four reaches the server 2.5 s later, when it was sent again long ago",
		func(t *redistest.Trouble, on bool) { t.Hold, t.HoldFor = when(on, someOf), 2500*time.Millisecond }, nil, true,
	},
	{
		"network: resets", "all connections are reset, and then one piece in twenty resets its own",
		func(t *redistest.Trouble, on bool) { t.Reset = when(on, 20) }, (*redistest.Proxy).ResetAll, false,
	},
}

// halfOpenFault needs bytes that can be read.
var halfOpenFault = wireFault{
	"network: subscriptions half open", "the server's side of those there are is closed, the client hears nothing; new ones are silent",
	func(t *redistest.Trouble, on bool) { t.SilentSubscriptions = on },
	func(p *redistest.Proxy) { p.HalfOpen(redistest.Subscriptions) }, false,
}

// networkFaults are those of the wire between workers and servers. Each hits all
// sites or one; site -1 has the proxies of all. None excuses anything: a client can tell that
// it hears nothing. together: processes wait for each other's round trips, so that one site's slow way is all sites'.
func networkFaults(readable, together bool, proxies func(site int) []*redistest.Proxy) (faults []Fault) {
	list := slices.Clone(wireFaults)
	if readable {
		list = append(list, halfOpenFault)
	}
	for _, w := range list {
		var hit []*redistest.Proxy
		faults = append(faults, Fault{
			Name: w.name, Note: w.note, Spreads: together && w.slow,
			Begin: func(_ context.Context, r *rand.Rand) (Extent, error) {
				site := r.IntN(2*Sites) - Sites
				extent := Extent{}
				if site >= 0 {
					extent.Sites = []int{site}
				}
				hit = proxies(max(-1, site))
				for _, p := range hit {
					p.Change(func(t *redistest.Trouble) { w.turn(t, true) })
					if w.at != nil {
						w.at(p)
					}
				}
				return extent, nil
			},
			End: func(context.Context) error {
				for _, p := range hit {
					p.Change(func(t *redistest.Trouble) { w.turn(t, false) })
				}
				return nil
			},
		})
	}
	return faults
}
