package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRights(t *testing.T) {
	for r, want := range map[Right]string{None: "none", Read: "read", Use: "use", Admin: "admin", 4: "Right(4)", 255: "Right(255)"} {
		if r.String() != want {
			t.Errorf("%d reads as %q, want %q", r, r, want)
		}
		if got := ParseRight(want); r <= Admin && got != r || r > Admin && got != None {
			t.Errorf("%q is the right %v", want, got)
		}
	}
	for _, word := range []string{"", "Admin", "admin ", strings.Repeat("read", 1000)} {
		if got := ParseRight(word); got != None {
			t.Errorf("%.20q is the right %v, want none", word, got)
		}
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	for w, want := range map[Right]int{None: 1, Read: 2, Use: 3, Admin: 4} {
		n := 0
		for _, r := range []Right{None, Read, Use, Admin} {
			if (Who{Right: w}).May(r) {
				n++
			}
		}
		if n != want {
			t.Errorf("%v may do %d, want %d", w, n, want)
		}
	}
	for _, c := range []struct {
		prefixes string
		name     string
		want     bool
	}{
		{"", "", true}, {"", "x", true}, {"a/", "a/", true}, {"a/", "a/b", true}, {"a/", "a", false}, {"a/", "", false},
		{"a/ b/", "b/c", true}, {"a/ b/", "c", false}, {"é", "éa", true}, {"é", "e", false},
	} {
		if got := (Who{Prefixes: strings.Fields(c.prefixes)}).Sees(c.name); got != c.want {
			t.Errorf("prefixes %q see %q: %v, want %v", c.prefixes, c.name, got, c.want)
		}
	}
}

func TestALogHasALineForEachRecord(t *testing.T) {
	var out, told bytes.Buffer
	l := NewLog(&out, slog.New(slog.NewTextHandler(&told, nil)))
	r := httptest.NewRequest("POST", "/", nil)
	long := strings.Repeat("x", 100_000)
	want := []Record{
		Record{What: "pause", Name: "a\nb", Result: "done"}.By(Who{Name: "olga"}, r),
		Record{What: "limit", Name: long, Limit: 5, Result: "in-use"}.By(Who{}, r),
		{},
	}
	for _, a := range want {
		l.Add(a)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(want) || strings.Count(told.String(), "\n") != len(want) {
		t.Fatalf("%d lines, %d told; want %d", len(lines), strings.Count(told.String(), "\n"), len(want))
	}
	for i, line := range lines {
		var a Record
		if err := json.Unmarshal([]byte(line), &a); err != nil || a != want[i] {
			t.Errorf("%.200s: %v", line, err)
		}
	}
	if a := want[0]; a.Who != "olga" || a.From != r.RemoteAddr || a.Time.IsZero() || a.Time.Location() != time.UTC {
		t.Errorf("%+v", a)
	}
}

func TestALogThatCannotBeWritten(t *testing.T) {
	var told bytes.Buffer
	NewLog(broken{}, slog.New(slog.NewTextHandler(&told, nil))).Add(Record{What: "pause"})
	if !strings.Contains(told.String(), "disk full") {
		t.Errorf("told %q", &told)
	}
	NewLog(broken{}, nil).Add(Record{}) // nobody to tell
	NewLog(nil, nil).Add(Record{})
}

type broken struct{ io.Writer }

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }
