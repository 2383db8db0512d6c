package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/report"
	"sema/bench/internal/results"
	"sema/bench/internal/runner"
	"sema/internal/redistest"
)

// asProgram makes the test binary behave as the program: it is its own driver.
const asProgram = "PEERS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil { // for the children
		panic(err)
	}
	os.Exit(m.Run())
}

// TestDocsAreOfTheResults writes the page again: what is committed must be what
// the committed results say.
func TestDocsAreOfTheResults(t *testing.T) {
	run, err := results.Load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	files, err := report.Render(run)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join("../docs", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what bench/results.json says (%v); try: make bench-report", name, err)
		}
	}
	pictures, _ := filepath.Glob("../docs/bench-*.svg")
	for _, p := range pictures {
		if files[filepath.Base(p)] == nil {
			t.Errorf("%s is drawn by nobody", p)
		}
	}
}

// goPeers are the contestants that need nothing but this program.
func goPeers() []string {
	var names []string
	for _, p := range peers.All {
		if p.Driver == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

func shortRun(t *testing.T) runner.Runner {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return runner.Runner{
		Rounds: 1, Round: 50 * time.Millisecond, Lease: 10 * time.Second,
		Drivers: t.TempDir(), Self: []string{self, "driver"}, Progress: func(string) {},
	}
}

func TestShortRun(t *testing.T) {
	r := shortRun(t)
	r.Scenarios, r.Contestants = []string{"uncontended", "4x16-of-8", "memory-64-of-8"}, goPeers()
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Scenarios) != 3 || run.Redis == "" || run.Versions["go"] == "" || !run.OwnServer {
		t.Errorf("run of %d scenarios, Redis %q, versions %v", len(run.Scenarios), run.Redis, run.Versions)
	}
	for _, s := range run.Scenarios {
		if len(s.Contestants) < 3 || s.Name != "memory-64-of-8" && s.RoundTripNS <= 0 {
			t.Errorf("%s: %d contestants, a round trip takes %d ns", s.Name, len(s.Contestants), s.RoundTripNS)
		}
		for _, c := range s.Contestants {
			if c.Failed != "" || len(c.Rounds) != 1 {
				t.Errorf("%s: %s: %d rounds, %s", s.Name, c.Name, len(c.Rounds), c.Failed)
				continue
			}
			one := c.Rounds[0]
			if one.Done < 1 || one.ElapsedNS < int64(r.Round) || one.CPUNS < 1 || one.P50NS > one.P99NS || one.P99NS > one.LongestNS {
				t.Errorf("%s: %s: %+v", s.Name, c.Name, one)
			}
		}
	}
	if _, err := report.Render(run); err != nil {
		t.Error(err)
	}
}

// TestRunGoesOnWithoutWhoFails has a driver that fails, and one that is missing.
func TestRunGoesOnWithoutWhoFails(t *testing.T) {
	r := shortRun(t)
	tools := t.TempDir()
	t.Setenv("PATH", tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	script := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"node", "npm", "java", "mvn"} {
		script(filepath.Join(tools, tool), "exit 1\n")
	}
	script(filepath.Join(r.Drivers, "node", "driver.sh"), `echo '{"error":"broken"}'; exit 1`)
	server := redistest.Start(t)
	r.URL = server.URL()
	r.Scenarios = []string{"uncontended"}
	r.Contestants = []string{"node-redis-semaphore", "redisson-lock"}
	run, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if run.LeftOut["redisson-lock"] == "" {
		t.Error("nobody says that redisson-lock has no driver")
	}
	failed := map[string]string{}
	for _, c := range run.Scenarios[0].Contestants {
		failed[c.Name] = c.Failed
	}
	if len(failed) != 2 || failed["sema"] != "" || failed["node-redis-semaphore"] != "broken" {
		t.Errorf("failed: %v; want node-redis-semaphore, broken, and sema fine", failed)
	}
	if n, err := server.Client().DBSize(t.Context()).Result(); err != nil || n > 0 || run.OwnServer {
		t.Errorf("%d keys left on a server that was given, %v", n, err)
	}
}

func TestRunRefuses(t *testing.T) {
	for what, change := range map[string]func(*runner.Runner){
		"unknown scenario":   func(r *runner.Runner) { r.Scenarios = []string{"nothing"} },
		"unknown contestant": func(r *runner.Runner) { r.Contestants = []string{"nobody"} },
		"0 rounds":           func(r *runner.Runner) { r.Rounds = 0 },
		"the URL of Redis":   func(r *runner.Runner) { r.URL = "ftp://127.0.0.1" },
	} {
		r := shortRun(t)
		change(&r)
		if _, err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// drive starts the driver as a process and waits until it is ready.
func drive(t *testing.T, contestant string) (*exec.Cmd, io.WriteCloser, *bufio.Scanner) {
	t.Helper()
	server := redistest.Start(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "driver", "--url", server.URL(),
		"--contestant", contestant, "--name", "s", "--limit", "1", "--workers", "4")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"ready":true`) {
		t.Fatalf("first line %q", lines.Text())
	}
	return cmd, in, lines
}

func TestDriverEndsWithItsInputInTheMiddleOfARound(t *testing.T) {
	for _, contestant := range []string{"sema", "redsync", "classic-scripted"} {
		cmd, in, _ := drive(t, contestant)
		if _, err := io.WriteString(in, `{"run_ms":600000}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", contestant, err)
		}
	}
}

func TestDriverFailsOnAMalformedCommand(t *testing.T) {
	cmd, in, lines := drive(t, "sema")
	if _, err := io.WriteString(in, `{"run_ms":10}`+"\n"+`{"run_ms":`+"\n"); err != nil {
		t.Fatal(err)
	}
	var said []map[string]any
	for lines.Scan() {
		var line map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		said = append(said, line)
	}
	if len(said) != 2 || said[0]["done"].(float64) < 1 || !strings.Contains(said[1]["error"].(string), "malformed") {
		t.Errorf("said %v", said)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit 1", err)
	}
}

func TestNamesAreUnique(t *testing.T) {
	names := slices.Sorted(slices.Values(contestantNames()))
	if len(slices.Compact(names)) != len(peers.All) {
		t.Error("two contestants of one name")
	}
}
