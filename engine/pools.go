package engine

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The ranges of pools.
const (
	MaxPools = 16 // of a semaphore; and so many different sets of pools may be waited for
	MaxPool  = 32 // bytes in the name of a pool
)

// Pools are amounts of pools: how much there is of each, or how much a permit takes. It is the text
// "gpu=1,licence=2", in the order of the names, so that it can be compared. "" is no pool.
type Pools string

// NewPools makes the text of amounts. At most MaxPools have a name each, of 1 … MaxPool letters, digits, dots,
// hyphens and underscores of ASCII, and an amount of least … MaxLimit. The error is an *ArgumentError.
func NewPools(amounts map[string]int, least int) (Pools, error) {
	if len(amounts) == 0 {
		return "", nil
	}
	if len(amounts) > MaxPools {
		return "", &ArgumentError{What: "pools", Value: len(amounts), Want: fmt.Sprintf("at most %d", MaxPools)}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if name == "" || len(name) > MaxPool || strings.ContainsFunc(name, isNoneOfPool) {
			return "", &ArgumentError{What: "pool", Value: name, Want: fmt.Sprintf("1 … %d letters, digits, dots, hyphens and underscores", MaxPool)}
		}
		if err := ValidateRange("", fmt.Sprintf("amount of pool %q", name), amounts[name], least, MaxLimit); err != nil {
			return "", err
		}
		list = append(list, name+"="+strconv.Itoa(amounts[name]))
	}
	return Pools(strings.Join(list, ",")), nil
}

func isNoneOfPool(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}

// ParsePools reads a text of amounts in any order, with or without spaces after the commas. The error is an *ArgumentError.
func ParsePools(text string, least int) (Pools, error) {
	if text == "" {
		return "", nil
	}
	amounts := map[string]int{}
	for part := range strings.SplitSeq(text, ",") {
		name, n, _ := strings.Cut(strings.TrimSpace(part), "=")
		amount, err := strconv.Atoi(n)
		if _, twice := amounts[name]; err != nil || twice {
			return "", &ArgumentError{What: "pools", Value: text, Want: `each pool once and its amount, such as "gpu=1,licence=2"`}
		}
		amounts[name] = amount
	}
	return NewPools(amounts, least)
}

// Validate checks a text that NewPools may not have made. The error is an *ArgumentError.
func (p Pools) Validate(least int) error {
	switch same, err := ParsePools(string(p), least); {
	case err != nil:
		return err
	case same != p:
		return &ArgumentError{What: "pools", Value: string(p), Want: fmt.Sprintf("%q", string(same))}
	}
	return nil
}

// All are the names and the amounts, by name.
func (p Pools) All() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for rest := string(p); rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ",")
			name, text, _ := strings.Cut(part, "=")
			if n, _ := strconv.Atoi(text); !yield(name, n) {
				return
			}
		}
	}
}

// Of is the amount of a pool; 0 if it is not among them.
func (p Pools) Of(name string) int {
	for other, n := range p.All() {
		if other == name {
			return n
		}
	}
	return 0
}

// Names are the names, with commas between: "gpu,licence".
func (p Pools) Names() string {
	var names []string
	for name := range p.All() {
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// Map is the amounts by name. It is not nil.
func (p Pools) Map() map[string]int { return maps.Collect(p.All()) }

// MarshalJSON implements json.Marshaler: an object with the amounts by name.
func (p Pools) MarshalJSON() ([]byte, error) { return json.Marshal(p.Map()) }

// UnmarshalJSON implements json.Unmarshaler. Amounts may be 0, see NewPools.
func (p *Pools) UnmarshalJSON(text []byte) (err error) {
	var amounts map[string]int
	if err = json.Unmarshal(text, &amounts); err == nil {
		*p, err = NewPools(amounts, 0)
	}
	return err
}
