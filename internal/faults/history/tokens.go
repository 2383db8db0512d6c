package history

import (
	"cmp"
	"fmt"
	"slices"
)

// tokens judges that tokens grow within a slot and within a semaphore of limit 1,
// and that no token comes twice there, or twice under one permit's id. Elsewhere
// two may be equal: what passes on within a process gets the time as its token.
func (j *judge) tokens(sem int) []Breach {
	s := j.Semaphores[sem]
	var breaches []Breach
	// A permit that the server has forgotten may pass on in its process until it is
	// renewed: with tokens that are rightly smaller than the next holder's.
	since := map[string]int64{}
	for _, a := range j.bySem[sem] {
		if a.got != 0 && (since[a.permit] == 0 || a.got < since[a.permit]) {
			since[a.permit] = a.got
		}
	}
	older := func(a, b *acquisition) bool {
		return a.permit != "" && a.permit != b.permit && since[b.permit] < since[a.permit]
	}
	breach := func(a, b *acquisition, what string) {
		breaches = append(breaches, Breach{
			Promise: PromiseTokens, Semaphore: s.Name, At: b.got,
			Text: fmt.Sprintf("%s: %s has token %d in slot %d (permit %s, got at %s), then %s token %d in slot %d (permit %s, called at %s, got at %s)", what,
				a.name(), a.token, a.slot, a.permit, ms(a.got-j.start), b.name(), b.token, b.slot, b.permit, ms(b.call-j.start), ms(b.got-j.start)),
			Excused: j.excuse(b.got, s.Lease, func(w *Window) bool { return w.Tokens || w.Limit && older(a, b) }),
		})
	}
	groups := map[int][]*acquisition{} // by slot
	type key struct {
		within string // a permit's id, or a slot
		token  int64
	}
	seen := map[key]*acquisition{}
	for _, b := range j.bySem[sem] {
		if b.got == 0 || b.token == 0 { // originals have none
			continue
		}
		var keys []key
		if b.permit != "" {
			keys = append(keys, key{b.permit, b.token})
		}
		if b.slot >= 0 || s.Limit == 1 && !s.Resized {
			groups[b.slot] = append(groups[b.slot], b)
			keys = append(keys, key{fmt.Sprint(b.slot), b.token})
		}
		for _, k := range keys {
			if a := seen[k]; a != nil {
				breach(a, b, "a token twice")
				break
			}
			seen[k] = b
		}
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
			if greatest != nil && greatest.token > b.token {
				breach(greatest, b, "a token that does not grow")
			}
		}
	}
	return breaches
}
