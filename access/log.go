package access

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"sema/internal/rate"
)

// Log writes records down, one line of JSON for each. Create it with NewLog; it
// is safe for concurrent use. Of what one address is refused it writes 20 lines, and then
// one every ten seconds, which says how many it left out.
type Log struct {
	log      *slog.Logger
	refusals rate.Limit

	mu     sync.Mutex
	out    io.Writer
	torn   bool           // the last line is not whole
	missed int            // lines that could not be written
	left   map[string]int // lines of refusals that were left out, by address and name
}

// NewLog makes a Log. Lines go to out, unless that is nil. The same records, and lines
// that cannot be written, are told to log, unless that is nil.
func NewLog(out io.Writer, log *slog.Logger) *Log {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Log{out: out, log: log, refusals: rate.Limit{Burst: 20, Every: 10 * time.Second}, left: map[string]int{}}
}

// Add writes a line. It is for the option Audit of a server and of a dashboard. A line
// that cannot be written is noted in a line of its own, Missed, once writing works again.
func (l *Log) Add(a Record) {
	if a.What == Refusal && !l.mayRefuse(&a) {
		return
	}
	l.log.Info("operator", "who", a.Who, "from", a.From, "what", a.What, "name", a.Name, "permit", a.Permit,
		"caller", a.Caller, "limit", a.Limit, "key", a.Key, "request", a.Request, "lines", a.Lines, "result", a.Result)
	if err := l.write(a); err != nil {
		l.log.Error("the audit log cannot be written", "error", err)
	}
}

// Begin writes a line for an operation that is about to be tried, with the result
// Begun. It is for the option AuditFirst of a server and of a dashboard. An error says
// that the line is not there.
func (l *Log) Begin(a Record) error {
	a.Result = Begun
	if err := l.write(a); err != nil {
		l.log.Error("the audit log cannot be written, so nothing is done", "error", err)
		return fmt.Errorf("sema: the audit log cannot be written: %w", err)
	}
	return nil
}

// mayRefuse reports whether a refusal gets a line, and how many did not.
func (l *Log) mayRefuse(a *Record) bool {
	from := hostOf(a.From) + " " + a.Who // nobody's refusals hide a bearer's
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusals.Wait(from) > 0 {
		if len(l.left) >= 10_000 {
			clear(l.left)
		}
		l.left[from]++
		return false
	}
	l.refusals.Take(from)
	a.Lines = l.left[from]
	delete(l.left, from)
	return true
}

func (l *Log) write(a Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return nil
	}
	if l.missed > 0 {
		missed := Record{Time: time.Now().UTC(), What: Missed, Lines: l.missed, Result: "lines that could not be written"}
		if err := l.line(missed); err != nil {
			l.missed++
			return err
		}
		l.missed = 0
	}
	err := l.line(a)
	if err != nil {
		l.missed++
	}
	return err
}

// line writes one line, on a line of its own even if the last one broke off.
func (l *Log) line(a Record) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.out.Write(text)
	if n > 0 {
		l.torn = n < len(text)
	}
	return err
}
