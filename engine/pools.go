package engine

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The ranges of pools.
const (
	MaxPools = 16 // of a semaphore; and so many different sets of pools may be waited for
	MaxPool  = 32 // bytes in the name of a pool
)

// Pools are amounts of pools: how much there is of each, or how much a permit takes. It is the text
// "gpu=1,licence=2", in the order of the names, so that it can be compared. "" is no pool.
//
// What there is of a pool may be a rate: then it comes back with time, and not with the permits. Of "rpm=500/1m" there are 500 at
// once, and 500 come back in each minute. Of "tpm=20000+200000/1m" there are 20,000 at once, and 200,000 come back in each minute.
type Pools string

// Amount is how much there is of a pool, or how much a permit takes.
type Amount struct {
	N    int           // at once
	Back int           // of a rate: how much comes back in each Per, 1 … MaxLimit
	Per  time.Duration // of a rate: 1 ms … MaxPer, in whole milliseconds; 0: it is none
}

// MaxPer is the longest time in which a rate comes back.
const MaxPer = 24 * time.Hour

var perUnits = []struct {
	name string
	is   time.Duration
}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}}

// String is the amount as in Pools: "500", "500/1m" or "20000+200000/1m".
func (a Amount) String() string {
	text := strconv.Itoa(a.N)
	if a.Per == 0 {
		return text
	}
	if a.Back != a.N {
		text += "+" + strconv.Itoa(a.Back)
	}
	for _, unit := range perUnits {
		if a.Per%unit.is == 0 {
			return text + "/" + strconv.Itoa(int(a.Per/unit.is)) + unit.name
		}
	}
	return text + "/" + a.Per.String() // out of range
}

// parseAmount reads an amount. Whether that is in its range is for check.
func parseAmount(text string) (a Amount, err error) {
	amounts, per, rate := strings.Cut(text, "/")
	if !rate {
		a.N, err = strconv.Atoi(text)
		return a, err
	}
	n, back, more := strings.Cut(amounts, "+")
	a.N, err = strconv.Atoi(n)
	if a.Back = a.N; strings.HasPrefix(back, "+") {
		err = strconv.ErrSyntax
	} else if more && err == nil {
		a.Back, err = strconv.Atoi(back)
	}
	if err == nil {
		a.Per, err = time.ParseDuration(per)
	}
	if err == nil && a.Per == 0 {
		err = strconv.ErrRange
	}
	return a, err
}

func (a Amount) check(name string, least int) error {
	err := ValidateRange("", fmt.Sprintf("amount of pool %q", name), a.N, least, MaxLimit)
	switch {
	case err != nil || a.Per == 0:
		return err
	case a.N == 0 || a.Per < time.Millisecond || a.Per > MaxPer || a.Per%time.Millisecond != 0:
		return &ArgumentError{What: fmt.Sprintf("rate of pool %q", name), Value: a, Want: "1 or more at once, back in 1ms … 24h, in whole milliseconds"}
	}
	return ValidateRange("", fmt.Sprintf("what comes back of pool %q", name), a.Back, 1, MaxLimit)
}

// NewPools makes the text of amounts, of which none is a rate. At most MaxPools have a name each, of 1 … MaxPool letters, digits, dots,
// hyphens and underscores of ASCII, and an amount of least … MaxLimit. The error is an *ArgumentError.
func NewPools(amounts map[string]int, least int) (Pools, error) {
	list := make(map[string]Amount, len(amounts))
	for name, n := range amounts {
		list[name] = Amount{N: n}
	}
	return PoolsOf(list, least)
}

// PoolsOf is NewPools of amounts that may be rates.
func PoolsOf(amounts map[string]Amount, least int) (Pools, error) {
	if len(amounts) > MaxPools {
		return "", &ArgumentError{What: "pools", Value: len(amounts), Want: fmt.Sprintf("at most %d", MaxPools)}
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if name == "" || len(name) > MaxPool || strings.ContainsFunc(name, isNoneOfPool) {
			return "", &ArgumentError{What: "pool", Value: name, Want: fmt.Sprintf("1 … %d letters, digits, dots, hyphens and underscores", MaxPool)}
		}
		if err := amounts[name].check(name, least); err != nil {
			return "", err
		}
		list = append(list, name+"="+amounts[name].String())
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
	amounts := map[string]Amount{}
	for part := range strings.SplitSeq(text, ",") {
		name, n, _ := strings.Cut(strings.TrimSpace(part), "=")
		amount, err := parseAmount(n)
		if _, twice := amounts[name]; err != nil || twice {
			return "", &ArgumentError{What: "pools", Value: text, Want: `each pool once and its amount, such as "gpu=1,licence=2"`}
		}
		amounts[name] = amount
	}
	return PoolsOf(amounts, least)
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

// All are the names and the amounts at once, by name.
func (p Pools) All() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for rest := string(p); rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ",")
			name, text, _ := strings.Cut(part, "=")
			n, err := strconv.Atoi(text)
			if err != nil {
				n, _ = strconv.Atoi(text[:max(0, strings.IndexAny(text, "+/"))])
			}
			if !yield(name, n) {
				return
			}
		}
	}
}

// amounts are the amounts by name.
func (p Pools) amounts() map[string]Amount {
	all := map[string]Amount{}
	for part := range strings.SplitSeq(string(p), ",") {
		if name, text, ok := strings.Cut(part, "="); ok {
			all[name], _ = parseAmount(text)
		}
	}
	return all
}

// Of is the amount of a pool at once; 0 if it is not among them.
func (p Pools) Of(name string) int {
	n, _ := p.Has(name)
	return n
}

// Has is the amount of a pool at once, and whether it is among them.
func (p Pools) Has(name string) (n int, ok bool) {
	for other, n := range p.All() {
		if other == name {
			return n, true
		}
	}
	return 0, false
}

// Amount is how much there is of a pool; zero if it is not among them.
func (p Pools) Amount(name string) (a Amount) {
	for part := range strings.SplitSeq(string(p), ",") {
		if other, text, _ := strings.Cut(part, "="); other == name {
			a, _ = parseAmount(text)
		}
	}
	return a
}

// With is p with other amounts for some; 0 takes a pool out. The error is an *ArgumentError.
func (p Pools) With(some Pools) (Pools, error) {
	all := p.amounts()
	for name, a := range some.amounts() {
		if all[name] = a; a.N == 0 {
			delete(all, name)
		}
	}
	return PoolsOf(all, 1)
}

// Names are the names, with commas between: "gpu,licence".
func (p Pools) Names() string {
	var names []string
	for name := range p.All() {
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

// Map is the amounts at once, by name. It is not nil.
func (p Pools) Map() map[string]int { return maps.Collect(p.All()) }

// MarshalJSON implements json.Marshaler: an object with the amounts by name, see Amount.
func (p Pools) MarshalJSON() ([]byte, error) { return json.Marshal(p.amounts()) }

// UnmarshalJSON implements json.Unmarshaler. Amounts may be 0, see NewPools.
func (p *Pools) UnmarshalJSON(text []byte) (err error) {
	var amounts map[string]Amount
	if err = json.Unmarshal(text, &amounts); err == nil {
		*p, err = PoolsOf(amounts, 0)
	}
	return err
}

// MarshalJSON implements json.Marshaler: a number, or of a rate the text of String.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a.Per == 0 {
		return json.Marshal(a.N)
	}
	return json.Marshal(a.String())
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *Amount) UnmarshalJSON(text []byte) error {
	var rate string
	if json.Unmarshal(text, &rate) != nil {
		*a = Amount{}
		return json.Unmarshal(text, &a.N)
	}
	parsed, err := parseAmount(rate)
	if err != nil || parsed.Per == 0 {
		return &ArgumentError{What: "amount of a pool", Value: rate, Want: `a number, or a rate such as "500/1m" or "20000+200000/1m"`}
	}
	*a = parsed
	return nil
}
