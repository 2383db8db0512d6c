package enginetest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

var inputTests = []test{
	{name: "names", run: func(e *env) {
		for what, name := range map[string]string{
			"empty": "", "10 kB": strings.Repeat("x", 10_000), "binary": "\xff\x00\xfe", "newline": "a\nb",
			"escape": "\x1b[2J", "C1": "a\u0085b", "line separator": "a\u2028b", "invalid UTF-8": "a\xc3(",
		} {
			_, err := sema.New(e.client(), name, 1, nil)
			e.bad(what, err, "name")
			_, err = e.client().Open(name, engine.Client{}, func(protocol.Notification) {})
			e.bad(what+" at the engine", err, "name")
		}
	}},
	{name: "odd names are names", run: func(e *env) {
		base := e.name[:20]
		for _, name := range []string{"{}", "}x{", "a{b}c", "%7B", "../../etc/passwd", "C:\\x", ".", "日本 語", "*", "[a-z]?", "UPPER", "upper", strings.Repeat("é", 117)} {
			e.name = base + name
			s := e.sem(1, nil)
			e.release(e.acquire(s, 1))
			p := e.acquire(s, 1)
			e.busy(s)
			names, err := e.client().List(e.ctx())
			e.ok(err)
			if listed := slices.DeleteFunc(names, func(n string) bool { return n != e.name }); len(listed) != 1 {
				e.Errorf("%q is listed %d times", e.name, len(listed))
			}
			e.release(p)
		}
	}},
	{name: "limits, weights, leases", run: func(e *env) {
		for _, limit := range []int{0, -1, math.MinInt, tooMuch()} {
			_, err := sema.New(e.client(), e.name, limit, nil)
			e.bad("limit", err, "limit")
		}
		_, err := sema.New(nil, e.name, 1, nil)
		e.bad("no engine", err, "engine")
		_, err = sema.Operate(nil, e.name)
		e.bad("no engine", err, "engine")
		s, p := e.held(2, nil, 1)
		e.bad("Set", e.operator().Set(e.ctx(), sema.Rule{Limit: -1}), "limit")
		for _, n := range []int{0, -1, tooMuch()} {
			_, err := s.Acquire(e.ctx(), sema.Weight(n))
			e.bad("weight", err, "weight")
		}
		for what, o := range map[string]sema.Options{
			"lease":            {Lease: time.Millisecond},
			"lease too long":   {Lease: math.MaxInt64},
			"margin":           {Lease: time.Second, Margin: time.Second},
			"renewal interval": {Lease: time.Second, Renew: time.Second},
			"limit policy":     {OnConflict: 7},
			"longest hold":     {MaxHold: 1},
			"time to keep":     {MaxHold: time.Minute, Keep: time.Second},
			"label":            {Label: strings.Repeat("x", engine.MaxLabel+1)},
		} {
			_, err := sema.New(e.client(), e.name, 1, &o)
			e.bad(what, err, strings.TrimSuffix(what, " too long"))
		}
		for _, id := range []string{"", "x", "a-1-0", "A-1-1", "a-1-1x", "!a-1-1", "a-1-99999999999", strings.Repeat("a", 1000)} {
			_, err := s.Resume(e.ctx(), id)
			e.bad("Resume "+id, err, "permit")
			e.bad("Release", e.operator().Release(e.ctx(), id), "permit")
			e.bad("Revoke", e.operator().Revoke(e.ctx(), id), "permit")
		}
		if st := e.state(s); st.Used != 1 || st.Limit != 2 || len(st.Waiters) != 0 {
			e.Fatalf("changed to %+v", st)
		}
		e.release(p)
	}},
	{name: "the largest limit and weight", run: func(e *env) {
		e.empty(e.sem(engine.MaxLimit, nil), engine.MaxLimit)
	}},
}

// tooMuch is above MaxLimit, or negative where no int is.
func tooMuch() int {
	most := int64(engine.MaxLimit)
	return int(most + 1)
}

// bad checks for an *ArgumentError, about the given thing unless that is empty.
func (e *env) bad(what string, err error, about string) {
	e.Helper()
	if bad, ok := errors.AsType[*sema.ArgumentError](err); !ok || about != "" && bad.What != about {
		e.Errorf("%s: error %v; want an *ArgumentError about %q", what, err, about)
	}
	if err != nil && len(err.Error()) > 500 {
		e.Errorf("%s: the error floods the terminal: %d bytes", what, len(err.Error()))
	}
}
