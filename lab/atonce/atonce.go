// Package atonce counts how many jobs were worked on at once, from what the
// processes say that worked on them.
package atonce

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"sema/lab/history"
)

// Span is the time for which a process worked on a job.
type Span struct {
	Key, Job   string
	Begin, End int64 // by history.Now; End is 0 if the process did not say
}

// Work says, for Read, that this process works on a job, works, and says that it
// has ended. key and job have no blanks.
func Work(key, job string, work func()) {
	fmt.Println("began", key, job, history.Now())
	work()
	fmt.Println("ended", key, job, history.Now())
}

// Read reads the spans that a process said, by their beginnings. A job that it did
// not end, for it was killed at a time, ends then, with End 0 where that is 0.
func Read(said []byte, killed int64) []Span {
	var spans []Span
	for line := range bytes.Lines(said) {
		var word string
		var s Span
		var at int64
		if n, _ := fmt.Sscan(string(line), &word, &s.Key, &s.Job, &at); n < 4 || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		switch word {
		case "began":
			s.Begin = at
			spans = append(spans, s)
		case "ended":
			for i := len(spans) - 1; i >= 0; i-- {
				if spans[i].Job == s.Job {
					spans[i].End = at
					break
				}
			}
		}
	}
	for i := range spans {
		if spans[i].End == 0 {
			spans[i].End = killed
		}
	}
	return spans
}

// Most is how many of the spans there were at once. One that begins in the instant
// in which another one ends is not beside it.
func Most(spans []Span) (most int, at time.Duration) {
	type edge struct {
		at   int64
		more int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.Begin, 1})
		if s.End != 0 {
			edges = append(edges, edge{s.End, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.more, b.more)) })
	now := 0
	for _, e := range edges {
		if now += e.more; now > most {
			most, at = now, time.Duration(e.at)
		}
	}
	return most, at
}
