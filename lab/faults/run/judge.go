package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sema/internal/fixture/history"
	"sema/lab/faults"
)

// judgeAgain judges the records that were saved of the results in a file, by the
// rules of today, and writes the file anew.
func judgeAgain(path string, log io.Writer) error {
	results, err := faults.ReadResults(path)
	if err != nil {
		return err
	}
	var b []byte
	for i := range results {
		r := &results[i]
		if r.History != "" {
			record, err := os.ReadFile(r.History)
			if err != nil {
				return fmt.Errorf("faults: %w", err)
			}
			round, err := history.Load(record)
			if err != nil {
				return err
			}
			round.Found = found(r.Ground)
			before := r.Violations
			r.JudgedAgain(history.Judge(round))
			_, _ = fmt.Fprintf(log, "%s seed %d, %s: %d violations, before %d\n", r.Ground, r.Seed, r.Fault, r.Violations, before)
			for _, b := range r.Breaches {
				if b.Excused == "" {
					_, _ = fmt.Fprintf(log, "  %s: %s: %s\n", b.Promise, b.Semaphore, b.Text)
				}
			}
		}
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("faults: %w", err)
		}
		b = append(append(b, line...), '\n')
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	return nil
}

// found is the longest time until clients of a ground have found the master again.
// go-redis asks the Sentinels for it for one caller after the other, each up to the
// time of a request.
func found(kind string) time.Duration {
	if strings.HasPrefix(kind, "sentinel") {
		return time.Second
	}
	return 0
}
