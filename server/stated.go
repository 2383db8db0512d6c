package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/loop"
	"sema/internal/protocol"
)

// stated is what requests for permits say of their semaphore, each time. Of caps and pools they may say nothing.
type stated struct {
	Limit           int
	Caps            engine.Caps
	Pools           engine.Pools
	NoCaps, NoPools bool
}

// stated is what a request says.
func (q *acquireRequest) stated(terms client.Terms) stated {
	return stated{terms.Limit, terms.Caps, terms.Pools, q.Caps == nil, q.Pools == nil}
}

func (s stated) String() string {
	return fmt.Sprintf("limit %d, caps %s, pools %q", s.Limit, cmp.Or(s.Caps.String(), "none"), string(s.Pools))
}

// maxStated is how many configurations of a semaphore are remembered.
const maxStated = 64

// state compares the configuration of a request with the stored one, and applies a policy of sema.Options.OnConflict. A configuration is
// newest when this server hears it for the first time: callers of an older one, which ask on, do not bring it back. A
// limit that an operator pinned stays.
func (x *semaphore) state(ctx context.Context, says stated, policy string) error {
	x.loop.Lock()
	old := policy != "strict" && (x.stated[says] || policy == "stored")
	x.loop.Unlock()
	if old {
		return nil
	}
	st, err := x.look(ctx)
	if err != nil {
		return err
	}
	has := stated{Limit: st.Limit, Caps: st.Caps}
	amounts := map[string]engine.Amount{}
	for _, p := range st.Pools {
		if p.Limit > 0 {
			amounts[p.Pool] = p.Amount()
		}
	}
	if has.Pools, err = engine.PoolsOf(amounts, 1); err != nil {
		return err
	}
	heard := says
	if says.NoCaps {
		says.Caps = has.Caps
	}
	if says.NoPools {
		says.Pools = has.Pools
	}
	says.NoCaps, says.NoPools = false, false
	switch {
	case st.Limit > 0 && has != says && policy == "strict":
		return problem(http.StatusConflict, "limit-differs", "it has %v, not %v", has, says)
	case st.Limit > 0 && has != says && !st.Pinned:
		if err := x.set(ctx, says, amounts); err != nil {
			return err
		}
	}
	x.loop.Lock()
	defer x.loop.Unlock()
	if len(x.stated) >= maxStated {
		clear(x.stated)
	}
	x.stated[heard] = true
	return nil
}

// set stores a configuration in place of one with these pools.
func (x *semaphore) set(ctx context.Context, says stated, pools map[string]engine.Amount) (err error) {
	r := protocol.Request{Kind: protocol.SetLimit, Limit: says.Limit, Caps: says.Caps}
	for i, n := range r.Caps {
		r.Caps[i] = cmp.Or(n, -1) // 0 would leave one as it is
	}
	for name := range pools {
		pools[name] = engine.Amount{}
	}
	for name := range says.Pools.All() {
		pools[name] = says.Pools.Amount(name)
	}
	if r.Pools, err = engine.PoolsOf(pools, 0); err != nil {
		return err
	}
	_, err = x.order(ctx, "acquire", func(now time.Duration, w *loop.Waiter) (*client.Order, error) {
		o := &client.Order{Owner: w}
		x.loop.Machine.Do(now, o, r)
		return o, nil
	})
	return err
}
