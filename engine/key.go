package engine

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	// MaxDepth is how many names a key has at the most.
	MaxDepth = 3

	// KeySeparator is between the names of a key. No name has control characters.
	KeySeparator = "\x01"
)

// Key names who shares a semaphore, by 0 … MaxDepth names: an organisation, a user of it, a model
// that the user calls. The names are joined by KeySeparator, so that keys can be compared; of one name
// Key is that name. "" is no key. A separator at the end, in State.Keys alone, stands for the callers
// of the key without a further name, beside those with one.
type Key string

// Caps are what each key without a cap of its own may hold, by how many names it has: first for one
// name. 0 is no such cap.
type Caps [MaxDepth]int

// NewKey joins names. A key has at most MaxDepth names and MaxKey bytes; each name is UTF-8 without control
// characters, and not empty. The error is an *ArgumentError.
func NewKey(names ...string) (Key, error) {
	k := Key(strings.Join(names, KeySeparator))
	if len(names) != len(k.Names()) { // a name has a separator, or is the only one and empty
		return "", &ArgumentError{What: "key", Value: string(k), Want: "names that are not empty, without control characters"}
	}
	return k, k.Validate()
}

// Given is the names without the empty ones at the end, but for the first: a user that is optional.
func Given(names []string) []string {
	for len(names) > 1 && names[len(names)-1] == "" {
		names = names[:len(names)-1]
	}
	return names
}

// Validate checks a key that NewKey may not have made. The error is an *ArgumentError.
func (k Key) Validate() error {
	switch names := strings.Count(string(k), KeySeparator) + 1; {
	case names > MaxDepth:
		return &ArgumentError{What: "key", Value: k.String(), Want: fmt.Sprintf("at most %d names, not %d", MaxDepth, names)}
	case len(k) > MaxKey:
		return &ArgumentError{What: "key", Value: k.String(), Want: fmt.Sprintf("at most %d bytes in all", MaxKey)}
	}
	for name := range strings.SplitSeq(string(k), KeySeparator) {
		if name == "" && k != "" {
			return &ArgumentError{What: "key", Value: k.String(), Want: "names that are not empty"}
		}
		if err := ValidateText("key", name, MaxKey); err != nil {
			return err
		}
	}
	return nil
}

// Names are the names of the key, from the outermost; none for "".
func (k Key) Names() []string {
	if k == "" {
		return nil
	}
	return strings.Split(string(k), KeySeparator)
}

// First is the key of the first n names of this one, or of all if it has fewer; "" for 0.
func (k Key) First(n int) Key {
	names := k.Names()
	return Key(strings.Join(names[:min(n, len(names))], KeySeparator))
}

// String is the key's names with slashes between: "acme/alice". Within a name a slash is %2F, and
// a percent sign %25.
func (k Key) String() string {
	if !strings.ContainsAny(string(k), KeySeparator+"/%") {
		return string(k)
	}
	names := k.Names()
	for i, name := range names {
		names[i] = strings.NewReplacer("%", "%25", "/", "%2F").Replace(name)
	}
	return strings.Join(names, "/")
}

// ParseKey reads what String returns. The error is an *ArgumentError.
func ParseKey(text string) (Key, error) {
	if text == "" {
		return "", nil
	}
	names := strings.Split(text, "/")
	for i, name := range names {
		plain, err := url.PathUnescape(name)
		if err != nil {
			return "", &ArgumentError{What: "key", Value: text, Want: "names with slashes between, and %25 for a percent sign"}
		}
		names[i] = plain
	}
	return NewKey(names...)
}

// MarshalJSON makes a text of one name, and a list of more.
func (k Key) MarshalJSON() ([]byte, error) {
	if names := k.Names(); len(names) > 1 {
		return json.Marshal(names)
	}
	return json.Marshal(string(k))
}

// UnmarshalJSON reads what MarshalJSON makes, or a list of one name. It checks nothing: see Validate.
func (k *Key) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*k = Key(one)
		return nil
	}
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return fmt.Errorf("a key is a text, or a list of texts: %w", err)
	}
	*k = Key(strings.Join(names, KeySeparator))
	return nil
}

// Validate checks that each cap is 0 … MaxLimit. The error is an *ArgumentError.
func (c Caps) Validate() error {
	for _, n := range c {
		if err := ValidateRange("", "cap", n, 0, MaxLimit); err != nil {
			return err
		}
	}
	return nil
}

// List is the caps up to the last that is not 0; empty, but not nil, without any.
func (c Caps) List() []int {
	n := len(c)
	for n > 0 && c[n-1] == 0 {
		n--
	}
	return append([]int{}, c[:n]...)
}

// String has commas between the caps, such as "20,4", and "-" for a 0. Without any cap it is "no caps".
func (c Caps) String() string {
	list := c.List()
	if len(list) == 0 {
		return "no caps"
	}
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = "-"
		if n > 0 {
			words[i] = strconv.Itoa(n)
		}
	}
	return strings.Join(words, ",")
}

// Level is how deep the key lies, 1 … MaxDepth: 1 for one name, and for "".
func (k Key) Level() int { return 1 + strings.Count(string(k), KeySeparator) }

// Above is the key without its last name; "" at level 1.
func (k Key) Above() Key { return k[:max(0, strings.LastIndex(string(k), KeySeparator))] }

// Own reports whether the key stands for the callers of the key above it without a further name.
func (k Key) Own() bool { return strings.HasSuffix(string(k), KeySeparator) }
