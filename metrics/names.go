package metrics

import (
	"strings"
	"sync"

	"sema/engine"
)

const (
	// Other is the value of the label sema.name for all semaphores beyond the
	// ceiling.
	Other = "_other"

	// DefaultNames is the ceiling of a source that was given none.
	DefaultNames = 200

	// MaxNames is the largest ceiling.
	MaxNames = 100_000
)

// Names gives semaphores their value of the label sema.name, and bounds how
// many there are. The first to come have a value of their own, and keep it; all
// others share [Other]. It is safe for concurrent use.
type Names struct {
	most int
	name func(string) string

	mu    sync.Mutex
	taken map[string]bool
}

// NewNames is for at most so many values beside Other, 1 … MaxNames; 0 means
// DefaultNames. group turns a semaphore's name into the label's value, so that
// one semaphore for each tenant makes one series for all of them; nil leaves
// names as they are. The error is an *engine.ArgumentError.
func NewNames(most int, group func(semaphore string) string) (*Names, error) {
	if most == 0 {
		most = DefaultNames
	}
	if err := engine.ValidateRange("metrics", "ceiling of names", most, 1, MaxNames); err != nil {
		return nil, err
	}
	return &Names{most: most, name: group, taken: map[string]bool{}}, nil
}

// Of is the label's value for a semaphore. It is valid UTF-8.
func (n *Names) Of(semaphore string) string {
	label := semaphore
	if n.name != nil {
		label = strings.ToValidUTF8(n.name(semaphore), "\uFFFD")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.taken[label]:
	case len(n.taken) >= n.most:
		return Other
	default:
		n.taken[label] = true
	}
	return label
}

// free gives back the places of all values that are not in use any more.
func (n *Names) free(used map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for label := range n.taken {
		if !used[label] {
			delete(n.taken, label)
		}
	}
}
