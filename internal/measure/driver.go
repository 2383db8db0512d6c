package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// Setup is the first line that a driver reads: a process that lets workers
// acquire and release. All lines, there and back, are JSON. The driver answers
//
//	{"ready":true,"versions":{…}}
//
// and then {"run_ms":1000} with an Answer, again and again. It ends with its
// input. When something fails it says {"error":"…"} and ends.
type Setup struct {
	URL        string `json:"url"` // of the Redis server; "" where the driver knows it
	Contestant string `json:"contestant"`
	Name       string `json:"name"` // of the semaphore
	Limit      int    `json:"limit"`
	Workers    int    `json:"workers"`
	HoldUS     int64  `json:"hold_us"`
	LeaseMS    int64  `json:"lease_ms"`

	// Drivers in other languages never see what follows.
	Process int  `json:"process,omitempty"` // counts the processes of one contestant
	Names   int  `json:"names,omitempty"`   // semaphores that the workers are spread over; 0 means 1
	Units   int  `json:"units,omitempty"`   // pairs to be timed at once; 0 means 1
	Crowd   int  `json:"crowd,omitempty"`   // waiters, or permits, that stay
	KeepUS  int  `json:"keep_us,omitempty"` // sema.Options.Keep
	Stamps  bool `json:"stamps,omitempty"`  // tell when each permit was got and given back
}

// Lease is how long a permit lives unless renewed.
func (s Setup) Lease() time.Duration { return time.Duration(s.LeaseMS) * time.Millisecond }

// Answer is what a driver did in one round; its percentiles are not set.
type Answer struct {
	Round
	Waits  [][2]int64 `json:"waits"` // how long an acquire took (two digits), and how many did; also those who were sent away
	Stamps []Stamp    `json:"stamps,omitempty"`
}

// Stamp says when a permit was got and when it was given back, as Unix time in
// nanoseconds, and by which worker. A run must not see the system's time changed.
type Stamp [3]int64

// check refuses answers that cannot be, whoever made them.
func (a Answer) check(s Setup) error {
	var waits int64
	for _, w := range a.Waits {
		waits += w[1]
	}
	switch {
	case a.Done < 0 || a.ElapsedNS < 1 || a.CPUNS < 0 || a.MaxHeld > int64(s.Workers):
	case waits != 0 && waits != a.Done+a.Unserved:
	// Timers may be a little early, never much.
	case waits != 0 && a.HoldNS*10 < a.Done*s.HoldUS*8000:
	default:
		return nil
	}
	return fmt.Errorf("an answer that cannot be: %d done and %d not in %d ns, %d waits, %d ns held, %d at once",
		a.Done, a.Unserved, a.ElapsedNS, waits, a.HoldNS, a.MaxHeld)
}

type ready struct {
	Ready    bool              `json:"ready"`
	Versions map[string]string `json:"versions"`
}

type command struct {
	RunMS int64 `json:"run_ms"`
}

type failure struct {
	Error string `json:"error"`
}

// Serve is a driver in Go. It ends with in, with ctx, or when something fails.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func(context.Context, Setup) (Gate, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	say := json.NewEncoder(out)
	err := serve(ctx, cancel, json.NewDecoder(in), say, open)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	_ = say.Encode(failure{err.Error()}) // there is nobody else to tell
	return err
}

func serve(ctx context.Context, cancel func(), in *json.Decoder, out *json.Encoder, open func(context.Context, Setup) (Gate, error)) (err error) {
	in.DisallowUnknownFields()
	var s Setup
	if err := in.Decode(&s); err != nil {
		return fmt.Errorf("malformed setup: %w", err)
	}
	if s.Workers < 1 || s.Limit < 1 || s.HoldUS < 0 {
		return fmt.Errorf("limit %d, %d workers that hold %d µs: want 1 or more, 1 or more, 0 or more", s.Limit, s.Workers, s.HoldUS)
	}
	commands := make(chan command)
	go func() { // the end of the input ends what goes on as well: nobody listens any more
		defer cancel()
		defer close(commands)
		for c := (command{}); in.Decode(&c) == nil; {
			select {
			case commands <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	gate, err := open(ctx, s)
	if gate.Close != nil {
		defer func() { err = errors.Join(err, gate.Close()) }()
	}
	if err != nil {
		return err
	}
	if gate.Workers > 0 {
		s.Workers = gate.Workers
	}
	crew := NewCrew(gate, s.Workers, time.Duration(s.HoldUS)*time.Microsecond)
	crew.stamps = s.Stamps
	var said any = ready{true, Versions()}
	for {
		if err := out.Encode(said); err != nil {
			return err
		}
		c, more := <-commands
		if !more {
			return nil
		}
		if said, err = crew.work(ctx, time.Duration(c.RunMS)*time.Millisecond); err == nil && gate.Check != nil {
			err = gate.Check(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// Versions of Go and of the libraries in this program that a figure may depend
// on.
func Versions() map[string]string {
	versions := map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}
	info, _ := debug.ReadBuildInfo()
	for _, path := range []string{"github.com/redis/go-redis/v9", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "golang.org/x/sync"} {
		for i := range info.Deps { // none without modules
			if info.Deps[i].Path == path {
				versions[path] = strings.TrimPrefix(info.Deps[i].Version, "v")
			}
		}
	}
	return versions
}
