package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sema/engine"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// form is the first number of a Snapshot's bytes, and changes with their layout. In later forms
// the release that wrote them comes next, for the error of a release that does not know the form.
const form = 1

var (
	// ErrForm says that another version of sema wrote a snapshot.
	ErrForm = errors.New("written by another version of sema")

	// ErrDamaged says that bytes are no snapshot.
	ErrDamaged = errors.New("damaged")
)

// Append appends the snapshot to b. The same snapshot gives the
// same bytes.
//
// Nearly all times are near that of the last token, and are written as what they are
// beyond that. Names recur: each is written once.
func (s *Snapshot) Append(w *pack.Writer) {
	n := names{seen: map[string]uint64{"": 1}}
	w.Uint(form)
	w.Int(s.Token)
	w.Int(int64(s.Limit))
	w.Bits(s.Pinned, s.Paused, s.Unfinished)
	w.Int(s.Keep - s.Token)
	w.Int(s.Alarm - s.Token)
	n.id(w, s.Watcher)
	w.Uint(uint64(len(s.Holders)))
	for i := range s.Holders {
		h := &s.Holders[i]
		n.common(w, h, s.Token)
		w.Int(h.Since - s.Token)
		w.Int(h.Token - s.Token)
		w.Int(int64(h.Slot))
		w.Bits(h.Revoked, h.Detached)
	}
	w.Uint(uint64(len(s.Waiters)))
	for i := range s.Waiters {
		t := &s.Waiters[i]
		n.common(w, t, s.Token)
		w.Int(t.Place - s.Token)
		w.Int(t.Lease)
		w.Int(int64(t.Behind))
		w.Bits(t.Insist, t.Detached)
	}
	w.Uint(uint64(len(s.Fences)))
	for _, client := range slices.Sorted(maps.Keys(s.Fences)) {
		n.text(w, client)
		w.Uint(uint64(s.Fences[client][0]))
		w.Int(s.Fences[client][1] - s.Token)
	}
	w.Uint(uint64(len(s.Keepers)))
	for _, client := range slices.Sorted(maps.Keys(s.Keepers)) {
		n.text(w, client)
		w.Int(s.Keepers[client].End - s.Token)
		w.Bits(s.Keepers[client].Room)
	}
	w.Uint(uint64(len(s.Reports)))
	for _, client := range slices.Sorted(maps.Keys(s.Reports)) {
		r := s.Reports[client]
		n.text(w, client)
		for _, v := range []int64{r.Good, r.Bad, r.Waited, r.End - s.Token} {
			w.Int(v)
		}
	}
	w.Bits(s.Auto != (ReportedAuto{}))
	if a := s.Auto; a != (ReportedAuto{}) {
		for _, v := range []int64{int64(a.Min), int64(a.Max), int64(a.Bad), a.End - s.Token} {
			w.Int(v)
		}
	}
	w.Bits(s.Keyed)
	if !s.Keyed {
		return
	}
	for _, c := range s.Caps {
		w.Int(int64(c))
	}
	w.Text(string(s.Pools))
	w.Int(s.Time)
	w.Int(s.Seq)
	w.Int(int64(s.Epoch))
	w.Uint(uint64(len(s.Keys)))
	for _, k := range s.Keys {
		n.text(w, k.Name)
		n.text(w, k.Set)
		w.Bits(k.Ruled, k.Full, k.Above)
		w.Int(k.Time)
		w.Int(int64(k.Cap))
		w.Int(int64(k.Share))
		w.Int(k.Base)
		w.Int(k.Seq)
		w.Int(int64(k.Epoch))
	}
}

// ReadSnapshot reads what Append wrote. The error is ErrForm or ErrDamaged.
func ReadSnapshot(r *pack.Reader) (s Snapshot, err error) {
	if f := r.Uint(); f != form && !r.Bad {
		return s, fmt.Errorf("%w: form %d, by sema %s; this is sema %s, which knows form %d", ErrForm, f, cmp.Or(r.Text(), "?"), engine.Version, form)
	}
	n := names{known: []string{""}}
	s.Token, s.Limit = r.Int(), int(r.Int())
	r.Bits(&s.Pinned, &s.Paused, &s.Unfinished)
	s.Keep, s.Alarm = s.Token+r.Int(), s.Token+r.Int()
	s.Watcher = n.readID(r)
	for range r.Count() {
		h := n.readCommon(r, s.Token)
		h.Since, h.Token, h.Slot = s.Token+r.Int(), s.Token+r.Int(), int(r.Int())
		r.Bits(&h.Revoked, &h.Detached)
		s.Holders = append(s.Holders, h)
	}
	for range r.Count() {
		t := n.readCommon(r, s.Token)
		t.Place, t.Lease, t.Behind = s.Token+r.Int(), r.Int(), int(r.Int())
		r.Bits(&t.Insist, &t.Detached)
		s.Waiters = append(s.Waiters, t)
	}
	for range r.Count() {
		if s.Fences == nil {
			s.Fences = map[string][2]int64{}
		}
		client := n.readText(r)
		s.Fences[client] = [2]int64{int64(r.Uint()), s.Token + r.Int()}
	}
	for range r.Count() {
		if s.Keepers == nil {
			s.Keepers = map[string]Keeper{}
		}
		client := n.readText(r)
		k := Keeper{End: s.Token + r.Int()}
		r.Bits(&k.Room)
		s.Keepers[client] = k
	}
	for range r.Count() {
		if s.Reports == nil {
			s.Reports = map[string]Reported{}
		}
		client := n.readText(r)
		s.Reports[client] = Reported{protocol.Totals{Good: r.Int(), Bad: r.Int(), Waited: r.Int()}, s.Token + r.Int()}
	}
	auto := false
	if r.Bits(&auto); auto {
		s.Auto = ReportedAuto{engine.Auto{Min: int(r.Int()), Max: int(r.Int()), Bad: int(r.Int())}, s.Token + r.Int()}
	}
	if r.Bits(&s.Keyed); s.Keyed {
		for i := range s.Caps {
			s.Caps[i] = int(r.Int())
		}
		s.Pools = engine.Pools(r.Text())
		s.Time, s.Seq, s.Epoch = r.Int(), r.Int(), int(r.Int())
		for range r.Count() {
			k := RecordedKey{Name: n.readText(r), Set: n.readText(r)}
			r.Bits(&k.Ruled, &k.Full, &k.Above)
			k.Time, k.Cap, k.Share, k.Base, k.Seq, k.Epoch = r.Int(), int(r.Int()), int(r.Int()), r.Int(), r.Int(), int(r.Int())
			s.Keys = append(s.Keys, k)
		}
	}
	if r.Bad {
		return Snapshot{}, ErrDamaged
	}
	return s, nil
}

// names has the texts of a snapshot that were written, or read, so far.
type names struct {
	seen  map[string]uint64 // when writing: the place of each, from 1 on
	known []string          // when reading
}

func (n *names) text(w *pack.Writer, s string) {
	place := n.seen[s] // 0: a new one follows
	w.Uint(place)
	if place == 0 {
		n.seen[s] = uint64(len(n.seen) + 1)
		w.Text(s)
	}
}

func (n *names) readText(r *pack.Reader) string {
	switch place := r.Uint(); {
	case place == 0:
		n.known = append(n.known, r.Text())
		return n.known[len(n.known)-1]
	case place <= uint64(len(n.known)):
		return n.known[place-1]
	}
	r.Fail()
	return ""
}

func (n *names) id(w *pack.Writer, id engine.ID) {
	n.text(w, id.Client)
	w.Uint(id.Number)
	w.Int(int64(id.Weight))
	w.Bits(id.Slot)
}

func (n *names) readID(r *pack.Reader) engine.ID {
	id := engine.ID{Client: n.readText(r), Number: r.Uint(), Weight: int(r.Int())}
	r.Bits(&id.Slot)
	return id
}

// common writes what permits and tickets have both.
func (n *names) common(w *pack.Writer, r *Recorded, base int64) {
	n.id(w, r.ID)
	n.text(w, r.Key)
	w.Int(r.End - base)
	n.text(w, r.Via)
	n.text(w, r.Rival)
	n.text(w, r.Client.Host)
	w.Int(int64(r.Client.PID))
	n.text(w, r.Client.Label)
	n.text(w, r.Client.Version)
	n.text(w, r.Client.Caller)
	w.Duration(r.Client.Lease)
}

func (n *names) readCommon(r *pack.Reader, base int64) Recorded {
	return Recorded{
		ID: n.readID(r), Key: n.readText(r), End: base + r.Int(), Via: n.readText(r), Rival: n.readText(r),
		Client: engine.Client{Host: n.readText(r), PID: int(r.Int()), Label: n.readText(r), Version: n.readText(r), Caller: n.readText(r), Lease: r.Duration()},
	}
}
