package rights

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sema/access"
	"sema/internal/fixture/expect"
)

func TestRights(t *testing.T) {
	words := []string{"", "read", "use", "admin"}
	for has, word := range words {
		if IsRight(word) != (has > 0) {
			t.Errorf("%q is a right: %v", word, has == 0)
		}
		for needed, right := range words {
			if got := May(access.Who{Right: word}, right); got != (has >= needed) {
				t.Errorf("%q may what needs %q: %v", word, right, got)
			}
		}
	}
	for _, word := range []string{"none", "Admin", "admin ", strings.Repeat("read", 1000)} {
		if IsRight(word) || May(access.Who{Right: word}, Read) || May(access.Who{Right: word}, None) || May(access.Who{Right: Admin}, word) {
			t.Errorf("%.20q is a right", word)
		}
	}
}

func TestPrefixes(t *testing.T) {
	for _, c := range []struct {
		prefixes string
		name     string
		want     bool
	}{
		{"", "", true}, {"", "x", true}, {"a/", "a/", true}, {"a/", "a/b", true}, {"a/", "a", false}, {"a/", "", false},
		{"a/ b/", "b/c", true}, {"a/ b/", "c", false}, {"é", "éa", true}, {"é", "e", false},
	} {
		if got := Sees(access.Who{Prefixes: strings.Fields(c.prefixes)}, c.name); got != c.want {
			t.Errorf("prefixes %q see %q: %v, want %v", c.prefixes, c.name, got, c.want)
		}
	}
}

func TestALogHasALineForEachRecord(t *testing.T) {
	var out, told bytes.Buffer
	l := NewLog(&out, slog.New(slog.NewTextHandler(&told, nil)))
	r := httptest.NewRequest("POST", "/", nil)
	long := strings.Repeat("x", 100_000)
	want := []access.Record{
		By(access.Record{What: "pause", Name: "a\nb", Result: "done"}, access.Who{Name: "olga"}, r),
		By(access.Record{What: "limit", Name: long, Limit: 5, Result: "in-use"}, access.Who{}, r),
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
		var a access.Record
		if err := json.Unmarshal([]byte(line), &a); err != nil || !reflect.DeepEqual(a, want[i]) {
			t.Errorf("%.200s: %v", line, err)
		}
	}
	if a := want[0]; a.Who != "olga" || a.From != r.RemoteAddr || a.Time.IsZero() || a.Time.Location() != time.UTC {
		t.Errorf("%+v", a)
	}
}

func TestALogThatCannotBeWritten(t *testing.T) {
	var told bytes.Buffer
	NewLog(broken{}, slog.New(slog.NewTextHandler(&told, nil))).Add(access.Record{What: "pause"})
	if !strings.Contains(told.String(), "disk full") {
		t.Errorf("told %q", &told)
	}
	NewLog(broken{}, nil).Add(access.Record{}) // without a log for the error
	NewLog(nil, nil).Add(access.Record{})
}

type broken struct{ io.Writer }

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// disk has room for a number of bytes.
type disk struct {
	bytes.Buffer
	room int
}

func (d *disk) Write(b []byte) (int, error) {
	n := min(d.room, len(b))
	d.room -= n
	d.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errors.New("disk full")
	}
	return n, nil
}

// After the disk was full, all lines but one are complete, and one line has the number of missing
// lines.
func TestADiskThatWasFull(t *testing.T) {
	d := &disk{room: 250}
	l := NewLog(d, nil)
	for range 5 {
		l.Add(access.Record{What: "pause", Name: "x", Result: "done"})
	}
	if err := l.Begin(access.Record{What: "pause"}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Error(err)
	}
	d.room = 10_000
	if err := l.Begin(access.Record{What: "unpause"}); err != nil {
		t.Error(err)
	}
	whole, broken, missed := map[string]int{}, 0, 0
	for line := range strings.Lines(d.String()) {
		var a access.Record
		if json.Unmarshal([]byte(line), &a) != nil {
			broken++
			continue
		}
		whole[a.What]++
		missed += a.Lines
	}
	if whole["pause"]+missed != 6 || whole["pause"] == 0 || whole["unpause"] != 1 || broken != 1 {
		t.Errorf("%v, %d broken, %d reported as missing:\n%s", whole, broken, missed, d.String())
	}
}

// A client that is refused all the time does not fill the disk. The log counts its requests.
func TestRefusalsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLog(&out, nil)
		r := httptest.NewRequest("PUT", "/v1/semaphores/x/limit?secret=1", nil)
		guess := func(from string) {
			r.RemoteAddr = from
			l.Add(Refused(access.Who{}, r, "x", "no"))
		}
		for range 1000 {
			guess("192.0.2.1:1")
		}
		guess("192.0.2.2:1")
		if n := strings.Count(out.String(), "\n"); n != 21 || !strings.Contains(out.String(), `"request":"PUT /v1/semaphores/x/limit"`) {
			t.Errorf("%d lines:\n%s", n, out.String())
		}
		time.Sleep(time.Minute)
		guess("192.0.2.1:2")
		expect.Has(t, out.String(), `"lines":980`)
	})
}

func TestProxies(t *testing.T) {
	trusted, err := ParseProxies("10.0.0.0/8, ::1,192.0.2.1")
	expect.OK(t, err)
	for _, c := range []struct {
		from, forwarded, proto, want string
		secure                       bool
	}{
		{"203.0.113.9:1", "198.51.100.1", "https", "203.0.113.9:1", false}, // a forged header
		{"10.1.2.3:1", "198.51.100.1", "https", "198.51.100.1", true},
		{"10.1.2.3:1", "6.6.6.6, 198.51.100.1", "http", "198.51.100.1", false}, // the proxy's client forged the first address
		{"10.1.2.3:1", "198.51.100.1, 10.9.9.9", "", "198.51.100.1", false},    // two proxies
		{"10.1.2.3:1", "", "", "10.1.2.3", false},
		{"10.1.2.3:1", "unknown", "https", "10.1.2.3", true},
		{"10.1.2.3:1", "10.1.1.1", "", "10.1.1.1", false},
		{"[::1]:1", "[2001:db8::1]:5", "", "2001:db8::1", false},
		{"192.0.2.1:1", "198.51.100.1:77", "", "198.51.100.1", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		for name, value := range map[string]string{"X-Forwarded-For": c.forwarded, "X-Forwarded-Proto": c.proto} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := trusted.Resolve(r); got.RemoteAddr != c.want || Secure(got) != c.secure {
			t.Errorf("%+v: %s, %v", c, got.RemoteAddr, Secure(got))
		}
	}
	for _, wrong := range []string{"", "x", "10.0.0.0/99", "10.0.0.1,"} {
		if _, err := ParseProxies(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
