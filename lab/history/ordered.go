package history

import (
	"cmp"
	"fmt"
	"slices"
)

// ordered judges that who was known to wait, or had its permit, before another
// asked has the smaller token. See Semaphore.Ordered.
func (j *judge) ordered(sem int) []Breach {
	s := j.Semaphores[sem]
	settled := func(a *acquisition) int64 { return cmp.Or(a.queued, a.got) }
	var granted []*acquisition // by call
	for _, a := range j.bySem[sem] {
		if a.got != 0 {
			granted = append(granted, a)
		}
	}
	bySettled := slices.Clone(granted)
	slices.SortFunc(bySettled, func(a, b *acquisition) int { return cmp.Compare(settled(a), settled(b)) })
	var breaches []Breach
	var last *acquisition // that with the greatest token of those settled before b's call
	for _, b := range granted {
		for ; len(bySettled) > 0 && settled(bySettled[0]) < b.call; bySettled = bySettled[1:] {
			if last == nil || bySettled[0].token > last.token {
				last = bySettled[0]
			}
		}
		if last == nil || b.token+s.Late.Microseconds() > last.token {
			continue
		}
		promise := PromiseOrder
		if last.got < b.call {
			promise = PromiseTokens
		}
		breaches = append(breaches, Breach{
			Promise: promise, Semaphore: s.Name, At: b.got,
			Text: fmt.Sprintf("%s was called at %s, after %s waited or held at %s, and has token %d, not above %d",
				b.name(), ms(b.call-j.start), last.name(), ms(settled(last)-j.start), b.token, last.token),
		})
	}
	return breaches
}
