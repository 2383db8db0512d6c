package others

import (
	"math/rand/v2"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"sema/lab/adaptive"
)

// limiter is that of one process.
type limiter interface {
	Limit() int
	Free() bool
	Begin()
	End(took time.Duration)
	Pass(d time.Duration)
}

// fleet is processes that each have a limiter of their own, and know nothing of each
// other.
type fleet [adaptive.Processes]limiter

func newFleet(one func() limiter) *fleet {
	f := &fleet{}
	for p := range f {
		f[p] = one()
	}
	return f
}

func (f *fleet) Limit() (sum int) {
	for _, l := range f {
		sum += l.Limit()
	}
	return sum
}

func (f *fleet) Free(p int) bool { return f[p].Free() }

func (f *fleet) Begin(p int, _ bool) { f[p].Begin() }

func (f *fleet) End(p int, took time.Duration, _ bool) { f[p].End(took) }

func (f *fleet) Now(at time.Duration, _ *rand.Rand) time.Duration { return at + time.Second }

// Pass has the clock of the bubble go on, too.
func (f *fleet) Pass(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
	for _, l := range f {
		l.Pass(d)
	}
}

// failsafe is failsafe-go's adaptive limiter. Each call is recorded, refused or not, as its
// own executor does.
type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
	permits []adaptivelimiter.Permit // interchangeable, except for their age
	began   []time.Time
}

func newFailsafe(least, most, first uint) *failsafe {
	return &failsafe{AdaptiveLimiter: adaptivelimiter.NewBuilder[any]().WithLimits(least, most, first).Build()}
}

func (f *failsafe) Free() bool { return f.CanAcquirePermit() }

func (f *failsafe) Begin() {
	p, ok := f.TryAcquirePermit()
	if !ok {
		panic("it had a permit, and has none")
	}
	f.permits, f.began = append(f.permits, p), append(f.began, time.Now())
}

// End ends the call that took so long.
func (f *failsafe) End(took time.Duration) {
	at := 0
	for i, b := range f.began { // the one that began then
		if distance(time.Since(b), took) < distance(time.Since(f.began[at]), took) {
			at = i
		}
	}
	f.permits[at].Record()
	f.permits = append(f.permits[:at], f.permits[at+1:]...)
	f.began = append(f.began[:at], f.began[at+1:]...)
}

func distance(a, b time.Duration) time.Duration { return max(a-b, b-a) }

func (f *failsafe) Pass(time.Duration) {}
