package history

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"
)

// script is a record in the making. Times are milliseconds.
type script struct{ Round }

const milli = int64(time.Millisecond)

// write is a record of one semaphore, limit 2, lease 3 s, and of two workers at
// sites 0 and 1.
func write(lines ...func(*script)) *Round {
	s := &script{Round{
		Semaphores: []Semaphore{{Name: "s", Limit: 2, Lease: 3 * time.Second}},
		Workers:    []Worker{{ID: 1}, {ID: 2, Site: 1}},
	}}
	s.Events = []Event{{At: 1, Kind: Began, Worker: 1, Count: 5}}
	for _, f := range lines {
		f(s)
	}
	return &s.Round
}

func (s *script) add(at int64, e Event) {
	e.At = at * milli
	if e.Held != 0 {
		e.Held *= milli
	}
	s.Events = append(s.Events, e)
}

// hold is a permit, acquired and released.
func hold(worker int, op, call, got, release int64, more ...func(*Event)) func(*script) {
	return func(s *script) {
		all := []Event{
			{Kind: Call, Weight: 1}, {Kind: Got, Held: got, Token: 1000*got + op}, {Kind: Release, Held: release}, {Kind: Released},
		}
		for i, at := range []int64{call, got, release, release} {
			e := all[i]
			e.Worker, e.Op = worker, op
			for _, f := range more {
				f(&e)
			}
			s.add(at, e)
		}
	}
}

// wait is a wait that ends without a permit.
func wait(worker int, op, call, until, failed int64, class string, more ...func(*Event)) func(*script) {
	return func(s *script) {
		for _, e := range []Event{{At: call, Kind: Call, Weight: 1, Until: until * milli}, {At: failed, Kind: Failed, Error: class}} {
			e.Worker, e.Op = worker, op
			for _, f := range more {
				f(&e)
			}
			s.add(e.At, e)
		}
	}
}

func event(at int64, e Event) func(*script) { return func(s *script) { s.add(at, e) } }

func queued(worker int, op, at int64) func(*script) {
	return event(at, Event{Kind: Queued, Worker: worker, Op: op})
}

func fault(begin, end int64, more ...func(*Window)) func(*script) {
	return func(s *script) {
		w := Window{Fault: "fault", Begin: begin * milli, End: end * milli}
		for _, f := range more {
			f(&w)
		}
		s.Windows = append(s.Windows, w)
	}
}

func semaphore(f func(*Semaphore)) func(*script) { return func(s *script) { f(&s.Semaphores[0]) } }

// keys has each key hold so much at the most.
func keys(perKey int) func(*script) {
	return semaphore(func(s *Semaphore) { s.Keys, s.PerKey = 2, perKey })
}

// key has an acquisition be for a key.
func key(name string) func(*Event) {
	return func(e *Event) {
		if e.Kind == Call {
			e.Key = name
		}
	}
}

func weight(n int) func(*Event) {
	return func(e *Event) {
		if e.Kind == Call {
			e.Weight = n
		}
	}
}

func token(n int64, slot int) func(*Event) {
	return func(e *Event) {
		if e.Kind == Got {
			e.Token, e.Slot = n, slot+1
		}
	}
}

func site1(w *Window)         { w.Sites = []int{1} }
func excusesLimit(w *Window)  { w.Limit = true }
func excusesOrder(w *Window)  { w.Order = true }
func excusesTokens(w *Window) { w.Tokens = true }
func hitsWorker1(w *Window)   { w.Workers = []int{1} }

// verdict is what is expected of a record: so many breaches of one promise, and
// none of any other.
type verdict struct {
	name    string
	record  *Round
	breaks  int
	excused int // of these
}

func try(t *testing.T, promise string, all []verdict) {
	t.Helper()
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) {
			breaks, excused := 0, 0
			for _, b := range Judge(v.record) {
				if b.Promise != promise {
					t.Errorf("%+v", b)
					continue
				}
				if breaks++; b.Excused != "" {
					excused++
				}
			}
			if breaks != v.breaks || excused != v.excused {
				t.Errorf("%d breaches, %d of them excused; want %d, %d: %+v", breaks, excused, v.breaks, v.excused, Judge(v.record))
			}
		})
	}
}

func TestRecordIsReadAsItWasSaved(t *testing.T) {
	r := write(hold(1, 1, 10, 20, 30), fault(5, 7, site1))
	var b bytes.Buffer
	if err := r.Save(&b); err != nil {
		t.Fatal(err)
	}
	b.WriteString(`{"t":17,"k":"ca`) // of a process that was killed
	got, err := Load(b.Bytes())
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v, %v; want %+v", got, err, r)
	}
}

func TestRecoveryLeavesOutWhatIsHeld(t *testing.T) {
	for _, c := range []struct {
		name   string
		record *Round
		want   map[int]time.Duration
	}{
		{"nobody waits", write(fault(1000, 2000), hold(1, 1, 2100, 2200, 2300)), map[int]time.Duration{}},
		{"free weight", write(fault(1000, 2000), hold(1, 1, 1100, 2200, 2300)), map[int]time.Duration{0: 200 * time.Millisecond}},
		{
			"held until 2150 by others",
			write(fault(1000, 2000), hold(2, 1, 10, 20, 2150), hold(2, 2, 10, 20, 2150), hold(1, 1, 1100, 2200, 2300)),
			map[int]time.Duration{0: 50 * time.Millisecond},
		},
		{"those hit", write(fault(1000, 2000, site1), hold(1, 1, 1100, 2200, 2300), hold(2, 1, 1100, 2500, 2600)), map[int]time.Duration{0: 500 * time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.record.Recoveries(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestWithinCountsWhatOverlapsOnce(t *testing.T) {
	spans := []span{{50, 60}, {10, 30}, {20, 40}, {25, 26}}
	if got := within(spans, 15, 55); got != 30 {
		t.Errorf("%d, want 30", got)
	}
	if !slices.IsSortedFunc(spans, func(a, b span) int { return int(a.from - b.from) }) {
		t.Error("not sorted")
	}
}
