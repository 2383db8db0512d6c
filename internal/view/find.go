package view

import (
	"cmp"
	"slices"
	"strings"

	"sema/engine"
)

// Found is who was found in all semaphores, sorted by name.
type Found struct {
	Holders []FoundHolder `json:"holders"`
	Waiters []FoundWaiter `json:"waiters"`
	Missed  int           `json:"missed"` // so many semaphores could not be read
}

// FoundHolder is a holder of the semaphore of this name.
type FoundHolder struct {
	Name string `json:"name"`
	Holder
}

// FoundWaiter is a waiter of the semaphore of this name.
type FoundWaiter struct {
	Name string `json:"name"`
	Waiter
}

// NewFound is nobody.
func NewFound() *Found { return &Found{Holders: []FoundHolder{}, Waiters: []FoundWaiter{}} }

// Add adds those of a semaphore whose permit, caller or host is text, whose key is, or lies below it,
// or whose label contains it.
func (f *Found) Add(v State, text string) {
	wanted, err := engine.ParseKey(text)
	isKey := err == nil && wanted != ""
	is := func(permit, caller string, key engine.Key, host, label string) bool {
		return text == permit || text == caller || isKey && slices.Contains(Path(key), wanted) || text == host || strings.Contains(label, text)
	}
	for _, h := range v.Holders {
		if is(h.Permit, h.Caller, h.Key, h.Host, h.Label) {
			f.Holders = append(f.Holders, FoundHolder{v.Name, h})
		}
	}
	for _, w := range v.Waiters {
		if is(w.Permit, w.Caller, w.Key, w.Host, w.Label) {
			f.Waiters = append(f.Waiters, FoundWaiter{v.Name, w})
		}
	}
}

// Sort sorts by name, and keeps the order of each semaphore's.
func (f *Found) Sort() {
	slices.SortStableFunc(f.Holders, func(a, b FoundHolder) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(f.Waiters, func(a, b FoundWaiter) int { return cmp.Compare(a.Name, b.Name) })
}
