package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/engine"
)

// This file has --replace: only the newest run of a key counts. A run that is queued revokes the tickets that are before its own.

// replaceEarlier revokes the tickets of the same key that are before an own one, and with running the permits. token is that of the
// own permit; 0: it waits. It returns how many permits of the key were granted earlier. An engine that is away is no error: the wait for
// it goes on, and so do the looks.
func (w *watch) replaceEarlier(ctx context.Context, own string, token int64) (held int, err error) {
	within, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	st, err := w.sem.State(within)
	running, waited := w.flags.replace == "running", time.Since(w.began) // it has its permit, or:
	var list []string
	for _, t := range st.Waiters {
		if t.ID == own {
			waited = t.Waiting
		}
	}
	for _, t := range st.Waiters {
		if t.Key == w.flags.key && (t.Waiting > waited || t.Waiting == waited && t.ID < own) {
			list = append(list, t.ID)
		}
	}
	for _, h := range st.Holders {
		if running && h.Key == w.flags.key && h.ID != own && (token == 0 || h.Token < token) {
			if held++; !h.Revoked {
				list = append(list, h.ID)
			}
		}
	}
	if err == nil && len(list) > 0 {
		err = operate(ctx, w.engine, "replace", w.name, func(ctx context.Context, o *sema.Operator) error {
			revoke := o.RevokeTicket
			if running { // a waiter may have its permit by now
				revoke = o.Revoke
			}
			for _, id := range slices.Backward(list) { // the next one first: then each of many that come at once has one to revoke, and not all
				if err := revoke(ctx, id); err != nil && !errors.Is(err, sema.ErrLost) {
					return err
				}
			}
			return nil
		})
	}
	if failure, ok := errors.AsType[*engine.Error](err); ok && failure.Temporary {
		return 1, nil // as if one were left
	}
	return held, err
}

// replaceWaiting is replaceEarlier for one that waits: at each news of its place, and each second while some are before it. If one goes and
// another comes, the place is the same, and there is no news.
func (w *watch) replaceWaiting(ctx context.Context) error {
	for {
		var again <-chan time.Time
		if w.ahead.Load() > 0 {
			again = time.After(time.Second)
		}
		select {
		case <-w.placed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
		if _, err := w.replaceEarlier(ctx, *w.own.Load(), 0); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// replaceAll is replaceEarlier for one that has its permit. It waits until all commands that it has stopped have ended.
func (w *watch) replaceAll(ctx context.Context, p *sema.Permit, signals *signals) error {
	for {
		held, err := w.replaceEarlier(ctx, p.ID(), p.Token())
		if err == nil {
			err = p.Err()
		}
		if err != nil || held == 0 {
			return err
		}
		if f := w.flags; f.tries() || f.waitGiven && time.Since(w.began) > f.wait {
			return &exit{f.conflictCode, usage(w.command("show", quote(w.name)), "%q: the older run has not ended in time", w.name)}
		}
		if err := signals.sleep(ctx, quick); err != nil {
			return err
		}
	}
}

// replacedBy names the newer run in place of the one with an id; "" if there is none.
func (w *watch) replacedBy(ctx context.Context, own string) string {
	ctx, cancel := context.WithTimeout(ctx, explainTime)
	defer cancel()
	st, err := w.sem.State(ctx)
	var by *engine.Client
	if err == nil {
		for i := range st.Holders {
			if h := &st.Holders[i]; h.Key == w.flags.key && h.ID != own && (by == nil || h.Age < time.Since(w.began)) {
				by = &h.Client
			}
		}
		for i := range st.Waiters {
			if t := &st.Waiters[i]; t.Key == w.flags.key && t.ID != own {
				by = &t.Client // the last one is the newest
			}
		}
	}
	if by == nil {
		return ""
	}
	return fmt.Sprintf("replaced by a newer run: %s on %s", cmp.Or(printable(by.Label, 60), fmt.Sprint(by.PID)), printable(by.Host, 60))
}

// by names the newer run after a permit was revoked; "" if there is none.
func (s *supervisor) by(ctx context.Context) string {
	if !errors.Is(s.Err(), sema.ErrRevoked) || s.wait.flags.replace == "" {
		return ""
	}
	by := s.wait.replacedBy(context.WithoutCancel(ctx), s.ID())
	return strings.TrimSuffix(": "+by, ": ")
}

// newer reports whether somebody of the key waits, or was granted a permit since a run came. A run that sleeps has no ticket that could be
// revoked; what was queued before its first ticket is gone.
func (p *program) newer(ctx context.Context, f *runFlags, name string, came time.Time) (newer bool) {
	_ = p.operate(ctx, "state", name, func(ctx context.Context, o *sema.Operator) error {
		st, err := o.State(ctx)
		for _, t := range st.Waiters {
			newer = newer || t.Key == f.key
		}
		for _, h := range st.Holders {
			newer = newer || h.Key == f.key && h.Age < time.Since(came)
		}
		return err
	})
	return newer
}
