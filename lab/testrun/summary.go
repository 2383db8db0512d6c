package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build
	Test       string
	Elapsed    float64
	Output     string
}

// result is what one test or package came to.
type result struct {
	name   string
	failed bool
	took   time.Duration
}

// summary is what one run of everything came to.
type summary struct {
	w  io.Writer
	mu sync.Mutex // of all that follows, and of w

	output map[string]*bytes.Buffer // of tests and packages that have not ended, by package and test
	failed map[string]bool          // packages with a test that failed
	parent map[string]bool          // tests with subtests

	packages []result
	tests    []result // those without subtests
	skipped  int
	without  int // cases that an engine cannot have happen to it
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: map[string]*bytes.Buffer{}, failed: map[string]bool{}, parent: map[string]bool{}}
}

// notApplicable begins what a case says that its engine needs not pass.
const notApplicable = "not applicable: "

// modules runs the tests of the modules in these directories, two at a time: the
// first may take as long as all others.
func (s *summary) modules(o options) {
	lanes := make(chan bool, 2)
	var all sync.WaitGroup
	for _, dir := range o.modules {
		lanes <- true
		all.Go(func() {
			words := append([]string{"test", "-json"}, o.flags...)
			if slices.Contains(o.plain, dir) {
				words = slices.DeleteFunc(words, func(w string) bool { return w == "-race" })
			}
			packages, err := o.in(dir)
			if err != nil {
				s.fail(dir, err)
			} else {
				s.module(dir, append(words, packages...))
			}
			<-lanes
		})
	}
	all.Wait()
}

// in are the packages to test of the module in a directory.
func (o options) in(dir string) ([]string, error) {
	if len(o.without) == 0 {
		return o.packages, nil
	}
	cmd := exec.Command("go", append([]string{"list"}, o.packages...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return slices.ContainsFunc(o.without, func(folder string) bool { return strings.HasSuffix(path, "/"+folder) })
	}), err
}

// fail takes in that the tests of a module could not be run.
func (s *summary) fail(dir string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.w, "FAIL\t%s: go test: %v\n", dir, err)
	s.packages = append(s.packages, result{name: "module " + dir, failed: true})
}

// module runs go with these words in the directory of a module.
func (s *summary) module(dir string, words []string) {
	cmd := exec.Command("go", words...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	if slices.Contains(words, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // the race detector is C
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	failed := false
	if err == nil {
		failed = s.read(out)
		err = cmd.Wait()
	}
	if err != nil && !failed {
		s.fail(dir, err)
	}
}

// read takes in what go test says, and prints a line for each package and all that
// a failure said. It reports whether a package failed.
func (s *summary) read(r io.Reader) (failed bool) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		s.mu.Lock()
		var e event
		if json.Unmarshal(line, &e) == nil {
			s.take(e)
			failed = failed || e.Action == "fail" && e.Test == ""
		} else {
			_, _ = s.w.Write(line)
		}
		s.mu.Unlock()
		if err != nil {
			return failed
		}
	}
}

func (s *summary) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		_, _ = io.WriteString(s.w, e.Output)
	case "output":
		if s.output[key] == nil {
			s.output[key] = &bytes.Buffer{}
		}
		s.output[key].WriteString(e.Output)
		if strings.Contains(e.Output, notApplicable) {
			s.without++
		}
	case "run":
		for i := strings.LastIndexByte(e.Test, '/'); i > 0; i = strings.LastIndexByte(e.Test[:i], '/') {
			s.parent[e.Package+" "+e.Test[:i]] = true
		}
	case "pass", "fail", "skip":
		s.end(e, key)
	}
}

// end takes in that a test or a package has ended.
func (s *summary) end(e event, key string) {
	r := result{e.Package, e.Action == "fail", time.Duration(e.Elapsed * float64(time.Second))}
	said := s.output[key]
	delete(s.output, key)
	if r.failed && said != nil {
		fmt.Fprintf(s.w, "%s\n%s", key, said)
	}
	switch {
	case e.Test == "" && e.Action == "skip": // it has no tests
	case e.Test == "":
		s.packages = append(s.packages, r)
		fmt.Fprintf(s.w, "%s\t%s\t%.1fs\n", map[bool]string{false: "ok", true: "FAIL"}[r.failed], r.name, e.Elapsed)
		if r.failed {
			s.interrupted(e.Package)
		}
	case s.parent[key]:
		s.failed[e.Package] = s.failed[e.Package] || r.failed
	case e.Action == "skip":
		s.skipped++
	default:
		r.name = strings.TrimSpace(key)
		s.tests = append(s.tests, r)
		s.failed[e.Package] = s.failed[e.Package] || r.failed
	}
}

// interrupted prints what the tests of a package said that had not ended when it
// did, as after a panic or a timeout, and counts them as failed.
func (s *summary) interrupted(pkg string) {
	for key, said := range s.output {
		if name, ok := strings.CutPrefix(key, pkg+" "); ok && name != "" {
			fmt.Fprintf(s.w, "%s, which did not end:\n%s", key, said)
			if delete(s.output, key); !s.parent[key] {
				s.tests = append(s.tests, result{name: key, failed: true})
			}
		}
	}
}

func (s *summary) ok() bool {
	return len(s.packages) > 0 && !slices.ContainsFunc(s.packages, func(p result) bool { return p.failed })
}

// passed is how many tests have passed.
func (s *summary) passed() (n int) {
	for _, t := range s.tests {
		if !t.failed {
			n++
		}
	}
	return n
}

// print sums up. It says what was left out, and if fewer tests than least have passed.
func (s *summary) print(took time.Duration, left string, least int) {
	slowest := slices.Clone(s.tests)
	slices.SortStableFunc(slowest, func(a, b result) int { return int(b.took - a.took) })
	fmt.Fprintf(s.w, "\nThe slowest tests of %v:\n", took.Round(time.Second))
	for _, t := range slowest[:min(10, len(slowest))] {
		fmt.Fprintf(s.w, "%8.1fs  %s\n", t.took.Seconds(), t.name)
	}
	if s.without > 0 {
		fmt.Fprintf(s.w, "%d cases are not applicable to the engine they were to try.\n", s.without)
	}
	if s.skipped > 0 {
		fmt.Fprintf(s.w, "%d skipped\n", s.skipped)
	}
	passed := s.passed()
	failed := len(s.tests) - passed
	for _, p := range s.packages {
		if p.failed {
			fmt.Fprintf(s.w, "FAILED: %s\n", p.name)
			if !s.failed[p.name] { // it did not build, or ended by itself
				failed++
			}
		}
	}
	for _, t := range s.tests {
		if t.failed {
			fmt.Fprintf(s.w, "FAILED: %s\n", t.name)
		}
	}
	if left != "" {
		fmt.Fprintf(s.w, "not run: %s\n", left)
	}
	if passed < least {
		fmt.Fprintf(s.w, "FAILED: %d tests passed, want at least %d: .ci/least-tests says why\n", passed, least)
	}
	fmt.Fprintf(s.w, "%d passed, %d failed\n", passed, failed)
}
