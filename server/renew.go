package server

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/client"
	"sema/internal/loop"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// renew gives a permit a new lease. Its length is that in the body, or else the length of
// the permit's last lease.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	q := struct {
		Lease *seconds `json:"lease_seconds"`
	}{}
	if err := readJSON(w, r, &q, false); err != nil {
		return err
	}
	lease, err := leaseOf(q.Lease, 0)
	if err != nil {
		return err
	}
	x, id, done, err := s.about(r, who)
	if err != nil {
		return err
	}
	defer done()
	p, err := x.renewed(r.Context(), numberOf(who, id), lease)
	if err != nil {
		return err
	}
	x.loop.Lock()
	answer := x.describe(p, id)
	x.loop.Unlock()
	return writeJSON(w, answer)
}

// renewed gives a permit a new lease of the given length; 0: that of the last lease.
func (x *semaphore) renewed(ctx context.Context, number uint64, lease time.Duration) (*permit, error) {
	p, fresh, err := x.holding(ctx, number, lease)
	if err != nil || fresh {
		return p, err
	}
	status, err := x.order(ctx, "renew", func(now time.Duration, w *loop.Waiter) (*client.Order, error) {
		if p.State() != client.Held {
			return nil, errGone
		}
		if lease > 0 {
			p.Wish.Lease = lease
		}
		o := &client.Order{Owner: w}
		x.loop.Machine.Renew(now, o, &p.Acquisition)
		return o, nil
	})
	switch {
	case err != nil:
		return nil, err
	case status == protocol.Revoked:
		return nil, errRevoked
	case status != protocol.Granted:
		return nil, errGone
	}
	x.loop.Lock()
	over := p.Over
	x.loop.Unlock()
	if over { // the grant that this server knew had ended, and there is a newer one
		p, _, err = x.holding(ctx, number, lease)
	}
	return p, err
}

// holding returns the held permit with a number. If another server granted it, or this one
// before a restart, this server takes it over. That renews it, and fresh is true.
func (x *semaphore) holding(ctx context.Context, number uint64, lease time.Duration) (p *permit, fresh bool, err error) {
	l := &x.loop
	l.Lock()
	p = x.permit(number)
	l.Unlock()
	if p == nil {
		id, h, err := x.find(ctx, number)
		if err != nil {
			return nil, false, err
		}
		if lease == 0 {
			lease = cmp.Or(h.Client.Lease, defaultLease)
		}
		l.Lock()
		if p = x.permit(number); p == nil {
			p = newPermit(client.Wish{Terms: client.Terms{Limit: 1, Lease: lease}, Target: protocol.Target{Key: h.Key, Takes: h.Takes}, ID: id, Who: h.Client})
			x.names.Resume(l.Now(), &p.Named)
			fresh = true
		}
		l.Start(l.Now())
	}
	for { // an ask for the permit may be in flight
		l.Lock()
		if next := x.permit(number); p.Over && next != nil {
			p, fresh = next, false // there is a new ask under the same id
		}
		state, err, changed := p.State(), p.err, p.changed
		l.Unlock()
		switch {
		case err != nil:
			return nil, false, err
		case state == client.Held:
			return p, fresh, nil
		case state == client.Waiting:
			return nil, false, errGone
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-x.server.done:
			return nil, false, closing()
		}
	}
}

func (s *Server) release(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	x, id, done, err := s.about(r, who)
	if err != nil {
		return err
	}
	defer done()
	var q struct {
		Used       wire.Amounts `json:"used"`        // of rates
		RetryAfter seconds      `json:"retry_after"` // nobody is granted a permit before
	}
	if err := readJSON(w, r, &q, false); err != nil {
		return err
	}
	says := said{retryAfter: q.RetryAfter.duration()}
	says.used, err = engine.PoolsOf(q.Used, 0)
	switch {
	case err != nil:
		return err
	case strings.Contains(string(says.used), "/"):
		return &engine.ArgumentError{What: "used", Value: string(says.used), Want: "how much of each rate, and no rate"}
	case q.RetryAfter < 0 || float64(q.RetryAfter) > engine.MaxCooldown.Seconds():
		return &engine.ArgumentError{What: "retry_after", Value: float64(q.RetryAfter), Want: "0 … 600"}
	}
	if err := x.released(r.Context(), numberOf(who, id), says); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// said is what a release says of the work that it ends.
type said struct {
	used       engine.Pools
	retryAfter time.Duration
}

// released releases the held permit with a number. If this server knows no such permit, or
// its grant is over, it releases a later grant of another server.
func (x *semaphore) released(ctx context.Context, number uint64, says said) error {
	var here, there *client.Order
	status, err := x.order(ctx, "release", func(now time.Duration, w *loop.Waiter) (*client.Order, error) {
		p := x.permit(number)
		if p == nil || p.State() != client.Held {
			return nil, errGone
		}
		if says.retryAfter > 0 {
			x.loop.Machine.Cool(now, says.retryAfter, &p.Wish.Who)
		}
		here = x.loop.Machine.Release(now, &p.Acquisition)
		here.Owner = w
		here.Uses(says.used)
		x.tellOver(p, nil)
		x.names.End(&p.Named)
		p.end(errGone)
		return here, nil
	})
	if err == nil && status == protocol.Done || err != nil && err != errGone {
		return err
	}
	id, h, err := x.find(ctx, number)
	if err == nil {
		status, err = x.order(ctx, "release", func(now time.Duration, w *loop.Waiter) (*client.Order, error) {
			there = &client.Order{Owner: w}
			if says.retryAfter > 0 {
				x.loop.Machine.Cool(now, says.retryAfter, &h.Client)
			}
			x.loop.Machine.Do(now, there, protocol.Request{Kind: protocol.Release, ID: id, Token: h.Token, Pools: says.used})
			return there, nil
		})
		if err == nil && status != protocol.Done {
			err = errGone
		} else if err == nil {
			x.tell(x.server.options.Observer.Released, nil, sema.Event{Permit: id.String(), Weight: h.Weight, Token: h.Token, Held: h.Age})
		}
	}
	x.loop.Lock()
	defer x.loop.Unlock()
	if err == errGone && (here != nil && here.Unsure() || there != nil && there.Unsure()) {
		return nil // an earlier attempt, whose answer was lost, has released it
	}
	return err
}

// about returns the semaphore and the caller's id of the permit in a request. The caller
// calls done at the end.
func (s *Server) about(r *http.Request, who *access.Who) (x *semaphore, id string, done func(), err error) {
	name, err := s.nameOf(r, who)
	if err != nil {
		return nil, "", nil, err
	}
	if id, err = callerID(r); err != nil {
		return nil, "", nil, err
	}
	x, done, err = s.semaphore(name)
	return x, id, done, err
}
