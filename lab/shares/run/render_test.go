package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/lab/page"
	"sema/lab/shares"
)

// The page is made again: what is committed is what the committed results say.
func TestDocsAreOfTheResults(t *testing.T) {
	dir := t.TempDir()
	expect.OK(t, run(t.Context(), "results.json", dir, "", true, 0))
	for _, name := range []string{"shares.md", "shares-waits.svg", "shares-levels.svg"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		expect.OK(t, err)
		if got, err := os.ReadFile(filepath.Join("../../../docs", name)); err != nil || string(got) != string(want) {
			t.Errorf("docs/%s is not what lab/shares/run/results.json says (%v); try: make shares SHARES=-draw", name, err)
		}
	}
}

// A permit counts for what it is held between the warm-up and the end, and a wait if it
// begins there, also one that does not end.
func TestCount(t *testing.T) {
	const second = 1e9
	hold := func(op int64, key string, call, got, release int64) []history.Event {
		return []history.Event{
			{At: call * second, Kind: history.Call, Op: op, Key: key, Weight: 1},
			{At: got * second, Kind: history.Got, Op: op, Token: op},
			{At: release * second, Kind: history.Release, Op: op},
		}
	}
	r := &history.Round{Semaphores: []history.Semaphore{{Name: "s", Limit: 20}}}
	r.Events = append(r.Events, hold(1, "light-1", 100, 101, 115)...)
	r.Events = append(r.Events, hold(2, "light-2", 112, 115, 200)...)
	r.Events = append(r.Events, hold(3, "heavy", 139, 141, 142)...)
	r.Events = append(r.Events, history.Event{At: 120 * second, Kind: history.Call, Op: 4, Key: "never", Weight: 1})
	got := scene{warm: 10 * second, time: 60 * second, end: 20 * second}.count(shares.Shares, r)
	light := got.Kinds["light"]
	if light.Served != 1 || light.P50 != 3000 || light.P99 != 3000 || light.Held != 1 || math.Abs(light.Rate-1./30) > 1e-9 {
		t.Errorf("light: %+v", light)
	}
	if heavy := got.Kinds["heavy"]; heavy.Served != 1 || heavy.Longest != 2000 || heavy.Held != 0 {
		t.Errorf("heavy: %+v", heavy)
	}
	if never := got.Kinds["never"]; never.Served != 0 || never.Longest != 80_000 {
		t.Errorf("never: %+v", never)
	}
}

// Nobody waits for ever who takes some of several pools, or much of them, and what these leave is used.
func TestPoolsAreShared(t *testing.T) {
	var r results
	expect.OK(t, page.Load("results.json", &r))
	seen := map[string]int{}
	for _, one := range r.Rounds {
		if one.Order != shares.AtOnce {
			continue
		}
		seen[one.Scene]++
		switch simulations, tests, wide := one.Kinds["simulation"].Rate, one.Kinds["test"].Rate, one.Kinds["wide"]; one.Scene {
		case "pools":
			if simulations < 0.3 || tests < 150 {
				t.Errorf("%.2f simulations and %.0f tests a second, want 0.3 and 150", simulations, tests)
			}
		case "wide":
			if wide.Served == 0 || wide.Longest > 60_000 || tests < 150 {
				t.Errorf("%d wide jobs, which wait for up to %.0f ms, beside %.0f tests a second", wide.Served, wide.Longest, tests)
			}
		}
	}
	if seen["pools"] == 0 || seen["wide"] == 0 {
		t.Errorf("measured are %v", seen)
	}
}
