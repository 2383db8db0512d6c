package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Slack is what a message, a start of a goroutine and the like may take on a
// busy host.
const Slack = 250 * time.Millisecond

// never is later than everything.
const never = math.MaxInt64

// Breach is a promise that was not kept.
type Breach struct {
	Promise   string        `json:"promise"`
	Semaphore string        `json:"semaphore,omitempty"`
	At        int64         `json:"at"` // nanoseconds since the round began
	Text      string        `json:"text"`
	Over      time.Duration `json:"over,omitempty"`    // for how long
	Excused   string        `json:"excused,omitempty"` // by this fault
}

// The promises.
const (
	PromiseLimit    = "limit"
	PromiseTokens   = "tokens"
	PromiseOrder    = "order"
	PromiseTurn     = "turn"
	PromiseWakeUp   = "no lost wake-up"
	PromiseContexts = "contexts"
	PromiseTold     = "told in time"
	PromiseLeak     = "nothing leaks"
)

// Judge reads the record of a round and says which promises were broken.
func Judge(r *Round) []Breach {
	j := newJudge(r)
	var all []Breach
	for i, s := range r.Semaphores {
		all = append(all, j.limit(i)...)
		all = append(all, j.caps(i)...)
		all = append(all, j.tokens(i)...)
		if s.Keys > 0 && r.Clock != 0 {
			_, breaches := j.turns(i)
			all = append(all, breaches...)
		}
		if s.Ordered {
			all = append(all, j.ordered(i)...)
			continue
		}
		all = append(all, j.order(i)...)
		all = append(all, j.wakeUp(i)...)
	}
	all = append(all, j.contexts()...)
	all = append(all, j.told()...)
	all = append(all, j.goroutines()...)
	for i := range all {
		all[i].At -= j.start
	}
	return all
}

// acquisition is what the record has of one call of Acquire or TryAcquire.
type acquisition struct {
	worker, sem, weight     int
	op                      int64
	try                     bool
	until                   int64
	call, queued, got, fail int64 // 0: not
	first, last             int64 // certain to be held; 0: not
	release, released       int64
	lost                    int64
	token                   int64
	slot                    int // -1: none
	permit, err, text       string
	key                     string
	releaseErr              string
}

// end is when it was known to have ended its wait.
func (a *acquisition) end() int64 {
	switch {
	case a.got != 0:
		return a.got
	case a.fail != 0:
		return a.fail
	}
	return never
}

func (a *acquisition) name() string {
	return fmt.Sprintf("acquisition %d of worker %d", a.op, a.worker)
}

// judge is a record, sorted out.
type judge struct {
	*Round
	start   int64
	all     []*acquisition   // by call
	bySem   [][]*acquisition // by call
	worker  map[int]*Worker
	stalls  map[int][]span // by worker; of the host under hostWorker
	limits  [][]setting    // by semaphore
	began   map[int]Event
	ended   map[int]Event
	closing map[[2]int]int64
	closed  []Event
}

// HostWorker is the worker whose stalls are the whole host's: the runner.
const HostWorker = -1

type span struct{ from, to int64 }

// setting is a call of SetLimit.
type setting struct {
	limit        int
	call, answer int64 // answer is never if it is not known to have been carried out
}

func newJudge(r *Round) *judge {
	j := &judge{Round: r, worker: map[int]*Worker{}, stalls: map[int][]span{}, began: map[int]Event{}, ended: map[int]Event{},
		closing: map[[2]int]int64{}, bySem: make([][]*acquisition, len(r.Semaphores)), limits: make([][]setting, len(r.Semaphores))}
	for i := range r.Workers {
		j.worker[r.Workers[i].ID] = &r.Workers[i]
	}
	type key struct {
		worker int
		op     int64
	}
	ops := map[key]*acquisition{}
	for _, e := range r.Events {
		if j.start == 0 || e.At < j.start {
			j.start = e.At
		}
		k := key{e.Worker, e.Op}
		a := ops[k]
		switch e.Kind {
		case Call:
			a = &acquisition{worker: e.Worker, sem: e.Sem, weight: e.Weight, key: e.Key, op: e.Op, try: e.Try, until: e.Until, call: e.At, slot: -1}
			ops[k] = a
			j.all = append(j.all, a)
		case Stall:
			j.stalls[e.Worker] = append(j.stalls[e.Worker], span{e.At - e.Span, e.At})
		case Limit:
			j.limits[e.Sem] = append(j.limits[e.Sem], setting{e.Limit, e.At, never})
		case Limited:
			if n := len(j.limits[e.Sem]); n > 0 && e.Error == "" {
				j.limits[e.Sem][n-1].answer = e.At
			}
		case Began:
			j.began[e.Worker] = e
		case Ended:
			j.ended[e.Worker] = e
		case Closing:
			j.closing[[2]int{e.Worker, e.Sem}] = e.At
		case Closed:
			j.closed = append(j.closed, e)
		default:
			if a != nil {
				a.note(e)
			}
		}
	}
	slices.SortFunc(j.all, func(a, b *acquisition) int { return cmp.Compare(a.call, b.call) })
	for _, a := range j.all {
		j.bySem[a.sem] = append(j.bySem[a.sem], a)
	}
	return j
}

func (a *acquisition) note(e Event) {
	if e.Held != 0 {
		if a.first == 0 {
			a.first = e.Held
		}
		a.last = e.Held
	}
	switch e.Kind {
	case Queued:
		a.queued = e.At
	case Got:
		a.got, a.token, a.slot, a.permit = e.At, e.Token, e.Slot-1, e.Permit
	case Failed:
		a.fail, a.err, a.text = e.At, e.Error, e.Text
	case Release:
		a.release = e.At
	case Released:
		a.released, a.releaseErr = e.At, e.Error
	case Lost:
		if a.lost == 0 {
			a.lost, a.text = e.At, e.Text
		}
	}
}

// hits reports whether a fault hits a worker.
func (j *judge) hits(w *Window, worker int) bool {
	if len(w.Sites) == 0 && len(w.Workers) == 0 || slices.Contains(w.Workers, worker) {
		return true
	}
	p := j.worker[worker]
	return p != nil && slices.Contains(w.Sites, p.Site)
}

// stalled is for how long a worker stood still between two times, alone or with
// the whole host.
func (j *judge) stalled(worker int, from, to int64) time.Duration {
	var spans []span
	spans = append(append(spans, j.stalls[worker]...), j.stalls[HostWorker]...)
	return within(spans, from, to)
}

// disturbed is for how long between two times faults lasted that hit a worker,
// each extended by so much. any: whomever they hit.
func (j *judge) disturbed(worker int, anybody bool, from, to int64, extended time.Duration) time.Duration {
	var spans []span
	for i := range j.Windows {
		if w := &j.Windows[i]; anybody || j.hits(w, worker) {
			spans = append(spans, span{w.Begin, w.End + int64(extended)})
		}
	}
	return within(spans, from, to)
}

// within is how much of [from, to] the spans cover together.
func within(spans []span, from, to int64) time.Duration {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	covered, at := int64(0), from
	for _, s := range spans {
		a, b := max(s.from, at), min(s.to, to)
		if b > a {
			covered += b - a
			at = b
		}
	}
	return time.Duration(covered)
}

// excuse is a fault that excuses a breach at a time: from its beginning until a
// lease after its end.
func (j *judge) excuse(at int64, lease time.Duration, excuses func(*Window) bool) string {
	for i := range j.Windows {
		if w := &j.Windows[i]; excuses(w) && w.Begin <= at && at <= w.End+int64(lease) {
			return w.Fault
		}
	}
	return ""
}

func ms(d int64) string { return time.Duration(d).Round(time.Millisecond).String() }
