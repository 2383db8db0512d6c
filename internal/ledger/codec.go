package ledger

import (
	"errors"
	"fmt"
	"math"

	"sema/engine"
	"sema/internal/pack"
)

// form is the first number of a Snapshot's bytes, and changes with their layout. In later forms
// the release that wrote them comes next, for the error of a release that does not know the form.
const form = 1

// ErrForm says that another version of sema wrote a snapshot.
var ErrForm = errors.New("written by another version of sema")

// Code appends the snapshot, or reads it. The same snapshot gives the same bytes.
// Reading fails with ErrForm, or pack.ErrDamaged.
//
// Nearly all times are near the time of the last token, so each is laid out as its distance from that.
func (s *Snapshot) Code(c *pack.Coder) {
	codeForm(c)
	pack.Int(c, &s.Token)
	pack.Int(c, &s.Limit)
	cools := s.Cooldown != 0 || s.CooledBy != engine.Client{}
	watched := s.Observed != nil
	if c.Bits(&s.Pinned, &s.Paused, &s.Unfinished, &s.Keyed, &cools, &watched); watched {
		s.codeObserved(c)
	}
	if cools {
		pack.From(c, &s.Cooldown, s.Token)
		c.Who(&s.CooledBy)
	}
	pack.From(c, &s.Keep, s.Token)
	pack.From(c, &s.Alarm, s.Token)
	c.ID(&s.Watcher)
	pack.List(c, &s.Holders, func(h *Recorded) {
		h.code(c, s.Token)
		pack.From(c, &h.Since, s.Token)
		pack.From(c, &h.Token, s.Token)
		pack.Int(c, &h.Slot)
		spent := s.Spent[h.ID]
		rates := len(spent) > 0
		if c.Bits(&h.Revoked, &h.Detached, &rates); rates {
			pack.List(c, &spent, func(until *float64) { double(c, until) })
			if c.Reading && s.Spent == nil {
				s.Spent = map[engine.ID][]float64{}
			}
			if c.Reading {
				s.Spent[h.ID] = spent
			}
		}
	})
	pack.List(c, &s.Waiters, func(t *Recorded) {
		t.code(c, s.Token)
		pack.From(c, &t.Place, s.Token)
		pack.Int(c, &t.Lease)
		pack.Int(c, &t.Behind)
		c.Bits(&t.Insist, &t.Detached, &t.Revoked)
	})
	pack.Map(c, &s.Fences, func(f *[2]int64) {
		pack.Int(c, &f[0])
		pack.From(c, &f[1], s.Token)
	})
	pack.Map(c, &s.Keepers, func(k *Keeper) {
		pack.From(c, &k.End, s.Token)
		c.Bits(&k.Room)
	})
	pack.Map(c, &s.Reports, func(r *Reported) {
		pack.Int(c, &r.Good)
		pack.Int(c, &r.Bad)
		pack.Int(c, &r.Waited)
		pack.From(c, &r.End, s.Token)
	})
	pack.Int(c, &s.Auto.Min)
	pack.Int(c, &s.Auto.Max)
	pack.Int(c, &s.Auto.Bad)
	pack.Int(c, &s.Auto.End)
	if s.Keyed {
		s.codeKeys(c)
	}
}

func (s *Snapshot) codeObserved(c *pack.Coder) {
	if c.Reading {
		s.Observed = &Observed{}
	}
	pack.Int(c, &s.Observed.WouldWait)
	pack.Int(c, &s.Observed.ForLimit)
	pack.Int(c, &s.Observed.Most)
	pack.List(c, &s.Observed.Levels, func(v *Level) {
		pack.Int(c, &v.Limit)
		pack.Int(c, &v.Grants)
	})
}

func double(c *pack.Coder, v *float64) {
	bits := math.Float64bits(*v)
	c.Uint(&bits)
	*v = math.Float64frombits(bits)
}

func codeForm(c *pack.Coder) {
	f, release := uint64(form), ""
	if c.Uint(&f); f != form && c.Err == nil {
		pack.Text(c, &release)
		c.Err = nil
		if release != "" {
			release = ", by sema " + release
		}
		c.Fail(fmt.Errorf("%w: form %d%s; this is sema %s, which knows form %d", ErrForm, f, release, engine.Version, form))
	}
}

func (s *Snapshot) codeKeys(c *pack.Coder) {
	for i := range s.Caps {
		pack.Int(c, &s.Caps[i])
	}
	pack.Text(c, &s.Pools)
	pack.Map(c, &s.Rates, func(r *Rate) {
		double(c, &r.Full)
		double(c, &r.Given)
	})
	pack.Int(c, &s.Due)
	pack.Int(c, &s.Time)
	pack.Int(c, &s.Seq)
	pack.Int(c, &s.Epoch)
	pack.List(c, &s.Keys, func(k *RecordedKey) {
		c.Name(&k.Name)
		c.Name(&k.Set)
		c.Bits(&k.Ruled, &k.Blocked, &k.Above, &k.Over)
		pack.Int(c, &k.Time)
		pack.Int(c, &k.Cap)
		pack.Int(c, &k.Share)
		pack.Int(c, &k.Start)
		pack.Int(c, &k.Seq)
		pack.Int(c, &k.Epoch)
	})
}

// code is what permits and tickets have both.
func (r *Recorded) code(c *pack.Coder, base int64) {
	c.ID(&r.ID)
	c.Name((*string)(&r.Key))
	c.Name((*string)(&r.Takes))
	pack.From(c, &r.End, base)
	c.Name(&r.Via)
	c.Name(&r.Rival)
	c.Who(&r.Client)
}
