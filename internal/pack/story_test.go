package pack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
)

// TestLayouts plays testdata/layouts.txt: values in the order in which they are appended, and their bytes. Read back, they
// are the same; and no part of the bytes is a whole.
func TestLayouts(t *testing.T) {
	data, err := os.ReadFile("testdata/layouts.txt")
	expect.OK(t, err)
	for line := range strings.Lines(string(data)) {
		values, want, found := strings.Cut(strings.TrimSpace(line), " -> ")
		if !found {
			continue // a heading
		}
		words := strings.Fields(values)
		b := Append(nil, func(c *Coder) { code(t, c, words, true) })
		if got := fmt.Sprintf("% x", b); got != want {
			t.Errorf("%s -> %s", values, got)
		}
		if err := Read(b, func(c *Coder) { code(t, c, words, false) }); err != nil {
			t.Errorf("%s: %v", values, err)
		}
		for n := range b {
			if err := Read(b[:n], func(c *Coder) { code(t, c, words, true) }); err == nil {
				t.Errorf("%s: %d of %d bytes are read as all", values, n, len(b))
			}
		}
	}
}

// code lays out words such as "int -3"; read from bytes without having the values, it compares.
func code(t *testing.T, c *Coder, words []string, known bool) {
	for i := 0; i+1 < len(words); i += 2 {
		what, text := words[i], strings.Trim(words[i+1], `"`)
		var n int64
		var u uint64
		var d time.Duration
		var s string
		switch what {
		case "int":
			n, _ = strconv.ParseInt(text, 10, 64)
			is := n
			if !known {
				is = 0
			}
			if Int(c, &is); !known && is != n {
				t.Errorf("%s is read as %d", text, is)
			}
		case "uint":
			u, _ = strconv.ParseUint(text, 10, 64)
			is := u
			if c.Uint(&is); !known && is != u {
				t.Errorf("%s is read as %d", text, is)
			}
		case "duration":
			d, _ = time.ParseDuration(text)
			is := d
			if c.Duration(&is); !known && is != d {
				t.Errorf("%s is read as %v", text, is)
			}
		case "text", "name":
			s = text
			if what == "text" {
				Text(c, &s)
			} else {
				c.Name(&s)
			}
			if !known && s != text {
				t.Errorf("%s is read as %q", text, s)
			}
		case "id":
			id, _ := engine.ParseID(text)
			is := id
			if c.ID(&is); !known && is != id {
				t.Errorf("%s is read as %v", text, is)
			}
		default:
			t.Fatalf("unknown value: %q", what)
		}
	}
}
