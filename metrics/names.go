package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"sema/engine"
)

const (
	// Other is the value of the label sema.name for all semaphores beyond the
	// ceiling.
	Other = "_other"

	// defaultNames is the ceiling of a source that was given none.
	defaultNames = 200

	// maxNames is the largest ceiling.
	maxNames = 100_000
)

// Names gives semaphores their value of the label sema.name, and bounds how
// many there are. The first to come have a value of their own, and keep it; all
// others share [Other]. A watch of the engine sees all of them, and chooses by another
// rule: see choose. It is safe for concurrent use.
type Names struct {
	most int
	name func(string) string

	mu    sync.Mutex
	taken map[string]time.Time // when something was last held or waited for, if choose was told
}

// NewNames returns Names with at most so many values beside Other, 1 …
// maxNames; 0 means defaultNames. group turns a semaphore's name into the
// label's value: so semaphores of many tenants can share one series. nil leaves
// names unchanged. The error is an *engine.ArgumentError.
func NewNames(most int, group func(semaphore string) string) (*Names, error) {
	if most == 0 {
		most = defaultNames
	}
	if err := engine.ValidateRange("metrics", "ceiling of names", most, 1, maxNames); err != nil {
		return nil, err
	}
	return &Names{most: most, name: group, taken: map[string]time.Time{}}, nil
}

// Of is the label's value for a semaphore. It is valid UTF-8.
func (n *Names) Of(semaphore string) string {
	label := n.label(semaphore)
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.taken[label]; ok {
		return label
	}
	if len(n.taken) >= n.most {
		return Other
	}
	n.taken[label] = time.Time{}
	return label
}

// label is the value for a semaphore if there is no bound.
func (n *Names) label(semaphore string) string {
	if n.name == nil {
		return semaphore
	}
	return strings.ToValidUTF8(n.name(semaphore), "\uFFFD")
}

// keepPlace is how long an idle label keeps its place from a busy one.
const keepPlace = 10 * time.Minute

// demand is what is going on under a label.
type demand struct{ Waiting, Used int }

func (d demand) busy() bool { return d != demand{} }

// choose gives places to labels, of all that there are, and reports which have one.
// A label keeps its place while something is held or waited for, and for keepPlace
// longer. What is free goes to labels with the most waiting callers, then with the
// most weight held, then by name; an idle one makes room for a busy one.
func (n *Names) choose(now time.Time, all map[string]demand) (taken map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var idle, rest []string
	for label, last := range n.taken {
		switch d, ok := all[label]; {
		case !ok:
			delete(n.taken, label)
		case d.busy():
			n.taken[label] = now
		case now.Sub(last) >= keepPlace:
			idle = append(idle, label)
		}
	}
	for label := range all {
		if _, ok := n.taken[label]; !ok {
			rest = append(rest, label)
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return cmp.Or(n.taken[a].Compare(n.taken[b]), cmp.Compare(b, a)) })
	slices.SortFunc(rest, func(a, b string) int {
		x, y := all[a], all[b]
		return cmp.Or(cmp.Compare(y.Waiting, x.Waiting), cmp.Compare(y.Used, x.Used), cmp.Compare(a, b))
	})
	for _, label := range rest {
		busy := all[label].busy()
		if len(n.taken) >= n.most {
			if !busy || len(idle) == 0 {
				break
			}
			delete(n.taken, idle[0])
			idle = idle[1:]
		}
		n.taken[label] = time.Time{}
		if busy {
			n.taken[label] = now
		}
	}
	taken = map[string]bool{}
	for label := range n.taken {
		taken[label] = true
	}
	return taken
}
