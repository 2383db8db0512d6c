package rights

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"sema/access"
)

// Log is an audit log with one line of JSON for each record. Create it with NewLog. It is safe
// for concurrent use. For the refused requests of one address it writes 20 lines, and then one
// every ten seconds with the number of lines that it left out.
type Log struct {
	log      *slog.Logger
	refusals RateLimit

	mu     sync.Mutex
	out    io.Writer
	torn   bool           // the last line is incomplete
	missed int            // lines that could not be written
	left   map[string]int // lines about refusals that were left out, by address and name
}

// NewLog makes a Log. It writes lines to out, and the same records and the errors of out to
// log. Both may be nil.
func NewLog(out io.Writer, log *slog.Logger) *Log {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Log{out: out, log: log, refusals: RateLimit{Burst: 20, Every: 10 * time.Second}, left: map[string]int{}}
}

// Add writes a line. It fits the option Audit of a server and of a dashboard. If lines cannot be
// written, a Missed line reports their number once writing works again.
func (l *Log) Add(a access.Record) {
	if a.What == Refusal && !l.mayRefuse(&a) {
		return
	}
	l.log.LogAttrs(context.Background(), slog.LevelInfo, "operator", attrs(a)...)
	if err := l.write(a); err != nil {
		l.log.Error("the audit log cannot be written", "error", err)
	}
}

// attrs are the fields of a record that are not empty, as its JSON has them, without the time, which a log adds.
func attrs(a access.Record) (list []slog.Attr) {
	v := reflect.ValueOf(a)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch x := v.Field(i).Interface().(type) {
		case time.Time:
		case string, int:
			if !v.Field(i).IsZero() {
				list = append(list, slog.Any(name, x))
			}
		default:
			if !v.Field(i).IsZero() {
				text, _ := json.Marshal(x) // as the audit log has it
				list = append(list, slog.Any(name, rawJSON(text)))
			}
		}
	}
	return list
}

// rawJSON is JSON also within a log of JSON.
type rawJSON json.RawMessage

func (r rawJSON) String() string               { return string(r) }
func (r rawJSON) MarshalJSON() ([]byte, error) { return r, nil }

// Begin writes a line with the Result Begun before an operation is tried. It fits the option
// AuditFirst of a server and of a dashboard. It fails if the line could not be written.
func (l *Log) Begin(a access.Record) error {
	a.Result = Begun
	if err := l.write(a); err != nil {
		l.log.Error("the audit log cannot be written, so the operation is refused", "error", err)
		return fmt.Errorf("sema: the audit log cannot be written: %w", err)
	}
	return nil
}

// mayRefuse reports whether a refusal gets a line. If so, it sets Lines of the record.
func (l *Log) mayRefuse(a *access.Record) bool {
	from := hostOf(a.From) + " " + a.Who // so unknown users cannot hide the refusals of a token
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

func (l *Log) write(a access.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return nil
	}
	if l.missed > 0 {
		missed := access.Record{Time: time.Now().UTC(), What: Missed, Lines: l.missed, Result: "lines that could not be written"}
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

// line writes one line. After an incomplete line it first begins a new one.
func (l *Log) line(a access.Record) error {
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
