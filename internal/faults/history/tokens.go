package history

import (
	"cmp"
	"fmt"
	"slices"
)

// tokens judges that no token comes twice, and that tokens grow within a slot
// and within a semaphore of limit 1.
func (j *judge) tokens(sem int) []Breach {
	s := j.Semaphores[sem]
	var breaches []Breach
	breach := func(a, b *acquisition, what string) {
		breaches = append(breaches, Breach{
			Promise: PromiseTokens, Semaphore: s.Name, At: b.got,
			Text: fmt.Sprintf("%s: %s has token %d in slot %d (permit %s, got at %s), then %s token %d in slot %d (permit %s, called at %s, got at %s)", what,
				a.name(), a.token, a.slot, a.permit, ms(a.got-j.start), b.name(), b.token, b.slot, b.permit, ms(b.call-j.start), ms(b.got-j.start)),
			Excused: j.excuse(b.got, s.Lease, func(w *Window) bool { return w.Tokens }),
		})
	}
	var granted []*acquisition
	groups := map[int][]*acquisition{} // by slot
	for _, a := range j.bySem[sem] {
		if a.got == 0 || a.token == 0 { // originals have none
			continue
		}
		granted = append(granted, a)
		if a.slot >= 0 || s.Limit == 1 && !s.Resized {
			groups[a.slot] = append(groups[a.slot], a)
		}
	}
	slices.SortStableFunc(granted, func(a, b *acquisition) int { return cmp.Compare(a.got, b.got) })
	seen := map[int64]*acquisition{}
	for _, b := range granted {
		if a := seen[b.token]; a != nil {
			breach(a, b, "a token twice")
		}
		seen[b.token] = b
	}
	for _, group := range groups { // by call
		byGot := slices.Clone(group)
		slices.SortFunc(byGot, func(a, b *acquisition) int { return cmp.Compare(a.got, b.got) })
		var greatest *acquisition
		for _, b := range group {
			for len(byGot) > 0 && byGot[0].got < b.call {
				if greatest == nil || byGot[0].token > greatest.token {
					greatest = byGot[0]
				}
				byGot = byGot[1:]
			}
			if greatest != nil && greatest.token >= b.token {
				breach(greatest, b, "a token that does not grow")
			}
		}
	}
	return breaches
}
