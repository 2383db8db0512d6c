package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema"
)

// The file engine keeps a ledger as JSON between any two steps: nothing that
// matters may be lost on the way.
func TestSavedLedgerGoesOnAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept, saved := &Ledger{}, &Ledger{}
		now := int64(1_800_000_000_000_000)
		id := func() string {
			return sema.ID{
				Client: rapid.SampledFrom([]string{"a.1", "b.1"}).Draw(t, "client"),
				Number: uint64(rapid.IntRange(1, 6).Draw(t, "number")),
				Slot:   rapid.Bool().Draw(t, "slot"), Weight: rapid.IntRange(1, 3).Draw(t, "weight"),
			}.String()
		}
		both := func(what string, f func(l *Ledger) string) {
			data, err := json.Marshal(saved.Save())
			if err != nil {
				t.Fatal(err)
			}
			var s Snapshot
			if err := json.Unmarshal(data, &s); err != nil {
				t.Fatal(err)
			}
			saved = Load(s)
			if a, b := f(kept), f(saved); a != b {
				t.Fatalf("%s: kept %s\nsaved %s", what, a, b)
			}
		}
		news := func(l *Ledger) string {
			text := ""
			took := l.Take()
			for _, client := range []string{"a.1", "b.1"} {
				if w := took[client]; w != nil {
					text += fmt.Sprintf(" %s %+v", client, *w)
				}
			}
			return text
		}
		t.Repeat(map[string]func(*rapid.T){
			"acquire": func(*rapid.T) {
				name := id()
				parsed, _ := sema.ParseID(name)
				r := sema.Request{ID: name, Weight: parsed.Weight, Limit: 4, Lease: 20 * time.Millisecond, Ticket: 10 * time.Millisecond, Wait: rapid.Bool().Draw(t, "wait")}
				both("acquire", func(l *Ledger) string { return fmt.Sprintf("%+v", l.Acquire(now, sema.Client{Host: "h"}, r)) + news(l) })
			},
			"renew": func(*rapid.T) {
				r := sema.Request{ID: id(), Token: 1, Lease: 20 * time.Millisecond}
				both("renew", func(l *Ledger) string { return fmt.Sprintf("%+v", l.Renew(now, sema.Client{}, r)) + news(l) })
			},
			"release": func(*rapid.T) {
				name := id()
				both("release", func(l *Ledger) string { return fmt.Sprint(l.Release(now, name)) + news(l) })
			},
			"revoke": func(*rapid.T) {
				name := id()
				both("revoke", func(l *Ledger) string { return fmt.Sprint(l.Revoke(now, name)) + news(l) })
			},
			"limit": func(*rapid.T) {
				n, pin := rapid.IntRange(1, 6).Draw(t, "limit"), rapid.IntRange(0, 9).Draw(t, "pin") == 0
				both("limit", func(l *Ledger) string { l.SetLimit(now, n, pin); return news(l) })
			},
			"time": func(*rapid.T) { now += int64(rapid.IntRange(1, 15_000).Draw(t, "µs")) },
			"": func(t *rapid.T) {
				st := kept.State(now)
				held := 0
				for _, h := range st.Holders {
					held += h.Weight
				}
				if held != st.Used {
					t.Fatalf("counts %d, holds %d", st.Used, held)
				}
				if a, b := fmt.Sprintf("%+v", st), fmt.Sprintf("%+v", saved.State(now)); a != b {
					t.Fatalf("kept %s\nsaved %s", a, b)
				}
			},
		})
	})
}
