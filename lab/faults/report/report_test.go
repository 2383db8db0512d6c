package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/history"
	"sema/lab/faults"
)

func rounds() []faults.Result {
	one := func(seed uint64, fault string, recovery time.Duration) faults.Result {
		return faults.Result{
			Ground: "standalone", Server: "redis 7.0.15", Seed: seed, Fault: fault, Took: 30 * time.Second,
			Faults: []history.Window{{Fault: fault}}, Load: faults.Load{Grants: 1500},
			Recoveries: []faults.Recovery{{Fault: fault, Took: recovery}},
		}
	}
	all := []faults.Result{
		one(4, "silence", 40*time.Millisecond), one(6, "silence", 2*time.Second), one(8, "silence", 30*time.Millisecond), one(5, faults.Mixed, time.Second),
		{Ground: "standalone", Seed: 7, Fault: "silence", Void: "no server"},
		{Ground: "standalone", Seed: 1, Fault: "flush", Planted: "barging", Breaks: history.PromiseOrder},
		{
			Ground: "standalone", Seed: 2, Fault: "flush", Planted: "barging", Breaks: history.PromiseOrder,
			Breaches: []history.Breach{{Promise: history.PromiseOrder}},
		},
	}
	all[3].Judged([]history.Breach{{Promise: history.PromiseLimit, Excused: "silence"}})
	return all
}

func TestPageHasTheFigures(t *testing.T) {
	var b strings.Builder
	if err := page.Execute(&b, summarize(rounds())); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| silence | 1.5 | 3 | 3 | 4,500 | 0 | 0 | 40 ms | 2.0 s | `make faults GROUND=standalone FAULT=\"silence\" SEED=6` |",
		"| mixed | 0.5 | 1 | 1 | 1,500 | 0 | 1 | 1.0 s | 1.0 s | `make faults GROUND=standalone FAULT=\"mixed\" SEED=5` |",
		"| silence | limit | 1 |",
		"| barging | order | flush on standalone | 1, 2 | yes |",
		"No promise was broken",
		"1 rounds say nothing",
		"* standalone: redis 7.0.15",
	} {
		if !strings.Contains(b.String(), line+"\n") && !strings.Contains(b.String(), line) {
			t.Errorf("no %q in\n%s", line, b.String())
		}
	}
}

func TestPageNamesBrokenPromises(t *testing.T) {
	all := rounds()
	all[2].Judged([]history.Breach{{Promise: history.PromiseLimit}})
	var b strings.Builder
	if err := page.Execute(&b, summarize(all)); err != nil {
		t.Fatal(err)
	}
	again := "`make faults GROUND=standalone FAULT=\"silence\" SEED=8` |"
	if strings.Contains(b.String(), "No promise was broken") || strings.Count(b.String(), again) != 2 {
		t.Errorf("want the broken round in both tables:\n%s", b.String())
	}
}

func TestReportOfAnInterruptedRun(t *testing.T) {
	var lines bytes.Buffer
	for _, r := range rounds() {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	lines.WriteString(`{"ground":"stand`)
	in, out := filepath.Join(t.TempDir(), "in.json"), filepath.Join(t.TempDir(), "out.md")
	if err := os.WriteFile(in, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-out", out, in}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), "4 rounds") {
		t.Errorf("%v: %s", err, text)
	}
	if err := run([]string{"-out", out}); err == nil {
		t.Error("a report of nothing")
	}
}

// The results of hours are not kept, so the committed page cannot be made again. It has each line of the
// template that holds no figure, and each row has the cells of its table's head.
func TestCommittedPageIsOfTheTemplate(t *testing.T) {
	text, err := os.ReadFile("../../../docs/data/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	cells := 0
	for line := range strings.Lines(string(text)) {
		has[line] = true
		switch n := strings.Count(line, "|"); {
		case n == 0:
			cells = 0
		case cells == 0:
			cells = n
		case n != cells:
			t.Errorf("%d cells below a head of %d: %s", n-1, cells-1, line)
		}
	}
	for line := range strings.Lines(words) {
		if !strings.Contains(line, "{{") && !has[line] {
			t.Errorf("docs/data/faults.md lacks %q", line)
		}
	}
}
