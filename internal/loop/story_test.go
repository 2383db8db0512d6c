package loop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

var update = flag.Bool("update", false, "write what the stories say now")

// TestStories plays the files of testdata: what callers and the engine do, and below each line, indented, what the loop then
// sends and what its callers hear. The lines of the engine are the answers to the call that is in flight, in its order.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	expect.OK(t, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			expect.OK(t, err)
			synctest.Test(t, func(t *testing.T) {
				if got := tell(t, string(data)); *update {
					expect.OK(t, os.WriteFile(file, []byte(got), 0o644))
				} else if got != string(data) {
					t.Errorf("it now goes so (-update writes it):\n%s", got)
				}
			})
		})
	}
}

// story is the loop, its callers and the engine of one file.
type story struct {
	loop    Loop
	callers map[string]*client.Acquisition
	answer  chan outcome
	notify  func(protocol.Notification)
	mu      sync.Mutex // for said
	said    []string
}

type outcome struct {
	reply protocol.Reply
	err   error
}

// tell plays a text. It returns the text with the lines that the loop adds.
func tell(t *testing.T, text string) string {
	s := &story{callers: map[string]*client.Acquisition{}, answer: make(chan outcome)}
	expect.OK(t, s.loop.Open(s, "story", engine.Client{}, Owner{Observe: s.observe}, func(protocol.Session) client.Config {
		return client.Config{Terms: client.Terms{Limit: 2, Lease: 30 * time.Second, Renew: 10 * time.Second, Margin: 3 * time.Second}, Keep: time.Second}
	}))
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, "\t") {
			continue
		}
		out = append(out, line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			s.do(t, words)
			synctest.Wait()
		}
		s.mu.Lock()
		for _, said := range s.said {
			out = append(out, "\t"+said)
		}
		s.said = nil
		s.mu.Unlock()
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	expect.OK(t, s.loop.Close(over, func(time.Duration) {}))
	return strings.Join(out, "\n") + "\n"
}

// do carries out a line.
func (s *story) do(t *testing.T, words []string) {
	l, now := &s.loop, s.loop.Now()
	switch what, args := words[0], words[1:]; what {
	case "acquire", "try":
		a := &client.Acquisition{Owner: args[0]}
		if len(args) > 1 {
			a.Key = engine.Key(args[1])
		}
		s.callers[args[0]] = a
		l.Lock()
		l.Machine.Acquire(now, a, 1, what == "acquire")
		go l.Run(now)
	case "release":
		l.Lock()
		l.Machine.Release(now, s.callers[args[0]]).Abandon()
		go l.Run(now)
	case "cancel":
		l.Lock()
		l.Machine.Cancel(now, s.callers[args[0]])
		go l.Run(now)
	case "wait":
		d, err := time.ParseDuration(args[0])
		expect.OK(t, err)
		time.Sleep(d)
	case "close":
		go func() {
			expect.OK(t, l.Close(t.Context(), func(now time.Duration) {
				for _, a := range s.callers {
					if a.State() == client.Held {
						l.Machine.Release(now, a).Abandon()
					}
				}
			}))
			s.say("closed")
		}()
	case "answers":
		s.answer <- outcome{reply: s.reply(t, strings.Split(strings.Join(args, " "), ","))}
	case "fails", "loses": // the engine has not, or may have, carried out the call
		s.answer <- outcome{err: &engine.Error{Op: "step", Temporary: true, NotExecuted: what == "fails", Err: errors.New("connection refused")}}
	case "notifies":
		go s.notify(s.notification(t, args))
	default:
		t.Fatalf("unknown line: %q", words)
	}
}

// reply is what "granted 7, done, may keep" stands for.
func (s *story) reply(t *testing.T, parts []string) (r protocol.Reply) {
	r.Limit = 2
	for _, part := range parts {
		is, rest, _ := strings.Cut(strings.TrimSpace(part), " ")
		n, _ := strconv.Atoi(rest)
		a := protocol.Answer{Slot: -1, Lease: 30 * time.Second, Token: int64(n), Ahead: n, Ticket: 1}
		switch is {
		case "may":
			r.Keep = true
			continue
		case "granted":
			a.Status = protocol.Granted
		case "queued":
			a.Status = protocol.Queued
		case "refused":
			a.Status = protocol.Refused
		case "gone":
			a.Status = protocol.Gone
		case "done":
			a.Status = protocol.Done
		default:
			t.Fatalf("unknown answer: %q", part)
		}
		r.Answers = append(r.Answers, a)
	}
	return r
}

func (s *story) notification(t *testing.T, words []string) (n protocol.Notification) {
	switch words[0] {
	case "grant": // the id's number, and the token
		number, _ := strconv.ParseUint(words[1], 10, 64)
		token, err := strconv.ParseInt(words[2], 10, 64)
		expect.OK(t, err)
		n.Grants = []protocol.Grant{{ID: engine.ID{Client: "me", Number: number, Weight: 1}, Token: token, Slot: -1, Ticket: 1}}
	case "recall":
		n.Recall = true
	default:
		t.Fatalf("unknown notification: %q", words)
	}
	return n
}

// observe notes what a caller hears. The lock is held.
func (s *story) observe(e client.Event) func() {
	who, _ := e.A.Owner.(string)
	switch e.Kind {
	case client.Granted:
		s.say("%s has a permit, token %d", who, e.A.Token())
	case client.Queued:
		s.say("%s waits, %d ahead", who, e.Ahead)
	case client.AskFailed:
		s.say("%s hears that a call failed", who)
	default:
		s.say("%s: %v, %v", who, e.Kind, e.Reason)
	}
	return nil
}

func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// The story is its own engine, and its only session.

func (s *story) Open(_ string, _ engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s.notify = notify
	return s, nil
}

func (s *story) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	var what []string
	for _, r := range c.Requests {
		kind := map[protocol.Kind]string{protocol.Ask: "ask", protocol.Renew: "renew", protocol.Release: "release"}[r.Kind]
		if r.Kind == protocol.Ask && r.Wait && r.Again {
			kind = "ask again"
		} else if r.Kind == protocol.Ask && !r.Wait {
			kind = "try"
		}
		what = append(what, fmt.Sprintf("%s %d", kind, r.ID.Number))
	}
	if c.Fence {
		what = append(what, "and earlier calls are void")
	}
	s.say("sends: %s", strings.Join(what, ", "))
	select {
	case o := <-s.answer:
		return o.reply, o.err
	case <-ctx.Done():
		return protocol.Reply{}, &engine.Error{Op: "step", Temporary: true, Err: ctx.Err()}
	}
}

func (s *story) Client() string                              { return "me" }
func (s *story) List(context.Context) ([]string, error)      { return nil, nil }
func (s *story) State(context.Context) (engine.State, error) { return engine.State{}, nil }
func (s *story) Close() error                                { return nil }
