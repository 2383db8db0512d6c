package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"sema/internal/fixture/history"
)

// Mixed is the kind of a round with a mix of faults.
const Mixed = "mixed"

// Result is what came out of a round: a line of JSON in what the runner writes.
type Result struct {
	Ground  string        `json:"ground"`
	Server  string        `json:"server"`
	Seed    uint64        `json:"seed"`
	Fault   string        `json:"fault"`             // the one fault, or Mixed
	Planted string        `json:"planted,omitempty"` // the bug that the workers had
	Breaks  string        `json:"breaks,omitempty"`  // the promise that it breaks
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took"`

	Faults     []history.Window    `json:"faults"` // in nanoseconds since the round began
	Semaphores []history.Semaphore `json:"semaphores"`
	Load       Load                `json:"load"`
	Violations int                 `json:"violations"` // breaches that no fault excuses
	Excused    int                 `json:"excused"`    // the others
	Breaches   []history.Breach    `json:"breaches"`   // the first of both
	Recoveries []Recovery          `json:"recoveries"`

	// Void says why the round says nothing: a fault could not be made, say.
	Void string `json:"void,omitempty"`

	Replay  string `json:"replay"`            // the command that plays it again
	History string `json:"history,omitempty"` // where the record was saved
}

// Load is what a round's processes did.
type Load struct {
	Processes  int           `json:"processes"`
	Goroutines int           `json:"goroutines"`
	Calls      int           `json:"calls"`
	Waits      int           `json:"waits"` // that were known to wait
	Grants     int           `json:"grants"`
	Refused    int           `json:"refused"`
	Cancelled  int           `json:"cancelled"`
	Failed     int           `json:"failed"` // with an engine's error
	Lost       int           `json:"lost"`   // permits whose holders were told of their loss
	Stalled    time.Duration `json:"stalled"`
}

// Recovery is how long after the end of a fault all were served again.
type Recovery struct {
	Fault string        `json:"fault"`
	Took  time.Duration `json:"took"`
}

// most is how many breaches a result has with their evidence, of those that are
// excused and of the others; all are counted.
const most = 20

// Judged takes in what the judge found.
func (r *Result) Judged(breaches []history.Breach) {
	for _, b := range breaches {
		n := &r.Violations
		if b.Excused != "" {
			n = &r.Excused
		}
		if *n++; *n <= most || r.Breaks == b.Promise && !r.Caught() {
			r.Breaches = append(r.Breaches, b)
		}
	}
}

// Caught reports whether the judge found what was planted.
func (r *Result) Caught() bool {
	return slices.ContainsFunc(r.Breaches, func(b history.Breach) bool { return b.Promise == r.Breaks && b.Excused == "" })
}

// Count counts what the events of a round tell.
func Count(events []history.Event) Load {
	var l Load
	for _, e := range events {
		switch e.Kind {
		case history.Call:
			l.Calls++
		case history.Queued:
			l.Waits++
		case history.Got:
			l.Grants++
		case history.Lost:
			l.Lost++
		case history.Stall:
			if e.Worker == history.HostWorker {
				l.Stalled += time.Duration(e.Span)
			}
		case history.Failed:
			switch e.Error {
			case history.ErrRefused, history.ErrHopeless:
				l.Refused++
			case history.ErrContext:
				l.Cancelled++
			default:
				l.Failed++
			}
		}
	}
	return l
}

// ReadResults reads the file that the runner wrote. A last line that was cut off is left
// out: hours may be interrupted.
func ReadResults(path string) (all []Result, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var one Result
		if err := json.Unmarshal(line, &one); err != nil {
			return all, fmt.Errorf("faults: %s: line %d: %w", path, len(all)+1, err)
		}
		all = append(all, one)
	}
	return all, nil
}
