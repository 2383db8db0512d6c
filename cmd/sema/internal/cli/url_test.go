package cli

import (
	"reflect"
	"testing"
	"time"

	"sema/internal/fixture/expect"
)

func TestURLs(t *testing.T) {
	for raw, want := range map[string]struct {
		addrs              []string
		user, pass, master string
		db, replicas       int
		tls, cluster       bool
	}{
		"redis://h":                            {addrs: []string{"h:6379"}},
		"REDIS://h:1/5":                        {addrs: []string{"h:1"}, db: 5},
		"redis://h?db=5":                       {addrs: []string{"h:6379"}, db: 5},
		"redis://[::1]:7/":                     {addrs: []string{"[::1]:7"}},
		"redis://[::1]":                        {addrs: []string{"[::1]:6379"}},
		"rediss://u:p%40ss@h":                  {addrs: []string{"h:6379"}, user: "u", pass: "p@ss", tls: true},
		"redis://:p@h":                         {addrs: []string{"h:6379"}, pass: "p"},
		"redis+sentinel://a,b:1/m?db=2":        {addrs: []string{"a:26379", "b:1"}, master: "m", db: 2},
		"rediss+sentinel://u:p@a/m":            {addrs: []string{"a:26379"}, master: "m", user: "u", pass: "p", tls: true},
		"redis://h?replicas=2":                 {addrs: []string{"h:6379"}, replicas: 2},
		"redis+sentinel://a/m?replicas=1&db=3": {addrs: []string{"a:26379"}, master: "m", db: 3, replicas: 1},
		"redis+cluster://a?replicas=100":       {addrs: []string{"a:6379"}, cluster: true, replicas: 100},
		"redis+cluster://a:1,b:2,c":            {addrs: []string{"a:1", "b:2", "c:6379"}, cluster: true},
		"rediss+cluster://u:p@[::1]:1,[::2]/":  {addrs: []string{"[::1]:1", "[::2]:6379"}, user: "u", pass: "p", tls: true, cluster: true},
	} {
		a, err := parseAddress(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		o, err := a.options(time.Second)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if !reflect.DeepEqual(o.Addrs, want.addrs) || o.Username != want.user || o.Password != want.pass ||
			o.MasterName != want.master || o.DB != want.db || a.replicas != want.replicas || (o.TLSConfig != nil) != want.tls || o.IsClusterMode != want.cluster {
			t.Errorf("%s: %+v", raw, o)
		}
		if !o.ContextTimeoutEnabled || o.ReadTimeout != time.Second/6 {
			t.Errorf("%s: timeouts %v, %v", raw, o.ContextTimeoutEnabled, o.ReadTimeout)
		}
	}
	a, err := parseAddress("file:///some%20where/dir")
	if err != nil || a.path != "/some where/dir" || a.shared {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = parseAddress("file:///srv/sema?shared"); err != nil || a.path != "/srv/sema" || !a.shared {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err = parseAddress("file:///srv/sema?other"); err == nil {
		t.Error("an unknown query was taken")
	}
}

// Whatever the lease and the grace, there is room between TERM and KILL, and
// KILL comes before the end.
func TestGrace(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 30 * time.Second, time.Hour} {
		for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Second, 2 * time.Hour} {
			g := graceOf(lease, after)
			if g.margin > lease/4 || g.margin < min(g.spare, lease/4) {
				t.Errorf("%v, %v: %+v", lease, after, g)
			}
			now := time.Now()
			deadline, end := now, now.Add(g.margin)
			left := g.untilKill(now, deadline)
			if left > after || left < 0 || !now.Add(left).Before(end) {
				t.Errorf("%v, %v: %+v: KILL after %v", lease, after, g, left)
			}
			if g.untilKill(end.Add(time.Second), deadline) != 0 {
				t.Error("overdue, and yet time is left")
			}
		}
	}
}

func TestLabels(t *testing.T) {
	for want, words := range map[string][]string{
		"sleep 3":                      {"sleep", "3"},
		"psql postgres://…@db/x -c ''": {"psql", "postgres://u:secret@db/x", "-c", ""},
		"sh -c 'a b'":                  {"sh", "-c", "a\nb"},
		"echo '�'":                     {"echo", "\xff"},
	} {
		if got := labelOf(words); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
}

// PostgreSQL's client reads + as a plus, so a space in an option reaches it as %20.
func TestSpacesInOptionsOfPostgres(t *testing.T) {
	a, err := parseAddress("postgres://app%20x@h/db?options=-c%20search_path%3Da%2Bb&application_name=night%20job")
	expect.OK(t, err)
	is, err := a.postgres()
	expect.OK(t, err)
	c := is.config.ConnConfig
	if c.User != "app x" || c.RuntimeParams["options"] != "-c search_path=a+b" || c.RuntimeParams["application_name"] != "night job" {
		t.Errorf("user %q, %q", c.User, c.RuntimeParams)
	}
}
