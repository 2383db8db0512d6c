package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/lab/faults"
)

// The page has the results of a run that was interrupted, and names the round to be played again.
func TestPage(t *testing.T) {
	one := func(seed uint64, fault string, recovery time.Duration) faults.Result {
		return faults.Result{
			Ground: "standalone", Server: "redis 7.0.15", Seed: seed, Fault: fault, Took: time.Hour, Faults: []history.Window{{Fault: fault}},
			Load: faults.Load{Grants: 1500}, Recoveries: []faults.Recovery{{Fault: fault, Took: recovery}},
		}
	}
	all := []faults.Result{
		one(4, "silence", 40*time.Millisecond), one(6, "silence", 2*time.Second), one(8, "silence", 30*time.Millisecond), one(5, faults.Mixed, time.Second),
		one(9, "flush", time.Millisecond), one(10, "flush", time.Second),
		{Ground: "standalone", Seed: 7, Fault: "silence", Void: "no server"},
		{Ground: "standalone", Seed: 1, Fault: "flush", Planted: "barging", Breaks: history.PromiseOrder},
		{Ground: "standalone", Seed: 2, Fault: "flush", Planted: "barging", Breaks: history.PromiseOrder, Breaches: []history.Breach{{Promise: history.PromiseOrder}}},
	}
	all[3].Judged([]history.Breach{{Promise: history.PromiseLimit, Excused: "silence"}})
	all[4].Judged([]history.Breach{{Promise: history.PromiseLimit}})
	var lines bytes.Buffer
	for _, r := range all {
		line, err := json.Marshal(r)
		expect.OK(t, err)
		lines.Write(append(line, '\n'))
	}
	lines.WriteString(`{"ground":"stand`)
	in, out := filepath.Join(t.TempDir(), "in.json"), filepath.Join(t.TempDir(), "out.md")
	expect.OK(t, os.WriteFile(in, lines.Bytes(), 0o600))
	expect.OK(t, run(out, []string{in}))
	text, err := os.ReadFile(out)
	expect.OK(t, err)
	expect.Has(t, text,
		"**6.0 hours, 6 rounds, 6 faults, 9000 grants: 1 times a promise was broken that no fault excuses.** 1 more rounds",
		"\n* standalone: redis 7.0.15\n",
		"\n| silence | 3 | 3 | 4500 | 0 | 0 | 40 ms | 2.0 s | `make faults GROUND=standalone FAULT=\"silence\" SEED=6` |\n",
		"\n| mixed | 1 | 1 | 1500 | 0 | 1 | 1.0 s | 1.0 s | `make faults GROUND=standalone FAULT=\"mixed\" SEED=5` |\n",
		"\n| flush | 2 | 2 | 3000 | 1 | 0 | 1.0 s | 1.0 s | `make faults GROUND=standalone FAULT=\"flush\" SEED=9` |\n",
		"\n| silence | limit | 1 |\n",
		"\n| barging | order | flush on standalone | 1 | no |\n| barging | order | flush on standalone | 2 | yes |\n",
	)
	if run(out, nil) == nil {
		t.Error("a report of nothing")
	}
}
