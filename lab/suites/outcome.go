package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// outcome is what one suite came to on one server. Subtests count as tests.
type outcome struct {
	suite                   string
	version                 string // of the server, if the suite says it
	passed, failed, skipped int
	failures                []string // names of the tests that failed
	broken                  bool     // the suite failed, and no test of it
	took                    time.Duration
}

func (o outcome) good() bool { return o.failed == 0 && !o.broken && o.passed > 0 }

func (o outcome) String() string {
	text := fmt.Sprintf("%d passed, %d failed", o.passed, o.failed)
	if o.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", o.skipped)
	}
	if o.broken {
		text += ", broken"
	}
	return fmt.Sprintf("%s, %.0f s", text, o.took.Seconds())
}

// event is a line of go test -json.
type event struct {
	Action, Test, Output string
}

var saysVersion = regexp.MustCompile(`the tests run on ((?:Redis|Valkey) [\d.]+)`)

// read counts the events of go test -json. It copies to w what the tests that
// fail have printed, and what belongs to no test.
func (o *outcome) read(events io.Reader, w io.Writer) {
	printed := map[string]*strings.Builder{}
	for lines := json.NewDecoder(events); ; {
		var e event
		if err := lines.Decode(&e); err != nil {
			if err != io.EOF {
				_, _ = fmt.Fprintf(w, "suites: go test -json: %v\n", err)
				o.broken = true
				_, _ = io.Copy(io.Discard, events) // so that go test can end
			}
			return
		}
		if m := saysVersion.FindStringSubmatch(e.Output); m != nil {
			o.version = m[1]
		}
		if printed[e.Test] == nil {
			printed[e.Test] = &strings.Builder{}
		}
		printed[e.Test].WriteString(e.Output)
		if e.Action == "fail" || e.Action == "build-output" {
			_, _ = io.WriteString(w, printed[e.Test].String())
			printed[e.Test].Reset()
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "pass":
			o.passed++
		case "skip":
			o.skipped++
		case "fail":
			o.failed++
			o.failures = append(o.failures, e.Test)
		default:
			continue
		}
		delete(printed, e.Test)
	}
}
