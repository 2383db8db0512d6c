package ledger

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/fixture/digest"
	"sema/internal/fixture/expect"
	"sema/internal/pack"
	"sema/internal/protocol"
)

func fullSnapshot() Snapshot {
	id := func(n uint64) engine.ID { return engine.ID{Client: "pabc.1", Number: n, Weight: 2, Slot: n%2 == 0} }
	who := engine.Client{Host: "h", PID: 7, Label: "l", Caller: "c", Lease: 3000}
	return Snapshot{
		Limit: 5, Pinned: true, Paused: true, Token: 1_700_000_000_000_000, Keep: 1_700_000_000_000_900, Cooldown: 1_700_000_000_000_400, CooledBy: who, Observed: &Observed{WouldWait: 4, ForLimit: 3, Most: 40, Levels: []Level{{2, 5}, {40, 1}}}, Alarm: 3, Watcher: id(1), Unfinished: true,
		Holders: []Recorded{{ID: id(2), End: 9, Since: 8, Token: 7, Slot: -1, Revoked: true, Via: "pabc.1", Rival: "x.2", Client: who, Target: protocol.Target{Key: "key", Takes: "gpu=1"}}, {ID: id(3), Detached: true, Slot: 2, Via: "n"}},
		Waiters: []Recorded{{ID: id(4), End: 1 << 50, Place: -5, Lease: 6, Insist: true, Behind: 12, Detached: true, Via: "pabc.1", Client: who}},
		Fences:  map[string][2]int64{"pabc.1": {-1, 44}, "other": {3, 4}},
		Keepers: map[string]Keeper{"pabc.1": {77, true}},
		Reports: map[string]Reported{"pabc.1": {protocol.Totals{Good: 1 << 60, Bad: 2, Waited: 3}, 5}, "gone": {}},
		Auto:    ReportedAuto{engine.Auto{Min: 2, Max: 200, Bad: 31}, 6},
		Keyed:   true, Caps: engine.Caps{3, 0, 2}, Pools: "gpu=3,rpm=5/1m", Rates: map[string]Rate{"rpm": {1_700_000_000_000_123.5, 7.25}}, Spent: map[engine.ID][]float64{id(2): {0, 1.5}}, Due: 12, Time: 1 << 40, Seq: 9, Epoch: 4,
		Keys: []RecordedKey{{"key", "", true, true, 8, true, 3, 4, 5, 6, true, 7}, {Name: "key", Set: "gpu", Start: 3, Seq: 9, Blocked: true, Epoch: 2}, {Name: "key\x01", Start: -2}, {Name: "key\x01below"}},
	}
}

// Every field of a snapshot comes back, and the zero one.
func TestSnapshotComesBack(t *testing.T) {
	for _, want := range []Snapshot{{}, fullSnapshot()} {
		got := Snapshot{}
		if err := pack.Read(pack.Append(nil, want.Code), got.Code); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
		}
	}
	v := reflect.ValueOf(fullSnapshot())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not tried", v.Type().Field(i).Name)
		}
	}
}

// So does any other one, and its bytes are always the same.
func TestAnySnapshotComesBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := rapid.Make[Snapshot]().Draw(r, "snapshot")
		want.Spent = nil // it belongs to holders
		if !want.Keyed {
			want.Caps, want.Pools, want.Rates, want.Due, want.Time, want.Seq, want.Epoch, want.Keys = engine.Caps{}, "", nil, 0, 0, 0, 0, nil
		}
		want.CooledBy.Lease = want.CooledBy.Lease.Truncate(time.Microsecond)
		for _, list := range [][]Recorded{want.Holders, want.Waiters} {
			for i := range list {
				list[i].Client.Lease = list[i].Client.Lease.Truncate(time.Microsecond)
			}
		}
		for i := range want.Holders {
			h := &want.Holders[i]
			h.Place, h.Lease, h.Insist, h.Behind = 0, 0, false, 0
		}
		for i := range want.Waiters {
			w := &want.Waiters[i]
			w.Since, w.Token, w.Slot, w.Revoked = 0, 0, 0, false
		}
		first, got := pack.Append(nil, want.Code), Snapshot{}
		if err := pack.Read(first, got.Code); err != nil {
			r.Fatal(err)
		}
		again := pack.Append(nil, got.Code)
		empty(&want)
		if empty(&got); !reflect.DeepEqual(got, want) || string(first) != string(again) {
			r.Errorf("got  %+v\nwant %+v\n%x\n%x", got, want, first, again)
		}
	})
}

// empty makes no difference between a list that is empty and none.
func empty(s *Snapshot) {
	for i := range reflect.TypeFor[Snapshot]().NumField() {
		f := reflect.ValueOf(s).Elem().Field(i)
		if k := f.Kind(); (k == reflect.Slice || k == reflect.Map) && f.Len() == 0 {
			f.SetZero()
		}
	}
	if s.Observed != nil && len(s.Observed.Levels) == 0 {
		s.Observed.Levels = nil
	}
}

// Bytes of others are refused, whatever they are.
func TestReadSnapshotRefuses(t *testing.T) {
	s := fullSnapshot()
	b := pack.Append(nil, s.Code)
	for n := range b {
		if err := pack.Read(b[:n], s.Code); !errors.Is(err, pack.ErrDamaged) {
			t.Fatalf("the first %d bytes of %d: %v", n, len(b), err)
		}
	}
	b[0]++
	expect.Is(t, pack.Read(b, s.Code), ErrForm)
}

// A change of the layout of snapshots needs the next number in form, and its digest here.
func TestALayoutOfSnapshotsHasItsNumber(t *testing.T) {
	digests := map[int]string{1: "93f7227127ab0a90"}
	got := digest.Of(func(s Snapshot) []byte {
		return pack.Append(nil, s.Code)
	})
	if want := digests[form]; got != want {
		t.Errorf("form %d has the digest %q, not %q: a new layout needs a new number, see CONTRIBUTING.md", form, got, want)
	}
}
