// Package driver is the Go driver: a process that lets workers acquire and
// release one semaphore when the runner tells it to. See package wire.
package driver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/wire"
)

// openTimeout bounds connecting and preparing.
const openTimeout = 10 * time.Second

// Options are the driver's command line.
type Options struct {
	URL, Contestant, Name string
	Limit, Workers        int
	Hold, Lease           time.Duration
}

// Serve does what the commands on in say until one says quit, in or ctx ends,
// or something fails. The failure is the last line on out as well.
func Serve(ctx context.Context, o Options, in io.Reader, out io.Writer) error {
	err := serve(ctx, o, in, out)
	if err != nil {
		_ = say(out, wire.Failure{Error: err.Error()}) // there is nobody else to tell
	}
	return err
}

func serve(ctx context.Context, o Options, in io.Reader, out io.Writer) (err error) {
	if o.Workers < 1 || o.Hold < 0 {
		return fmt.Errorf("%d workers that hold %v: want 1 or more, and 0 or more", o.Workers, o.Hold)
	}
	peer, err := peers.Find(o.Contestant)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opening, opened := context.WithTimeout(ctx, openTimeout)
	defer opened()
	gate, err := peer.Open(opening, peers.Setup{URL: o.URL, Name: o.Name, Limit: o.Limit, Lease: o.Lease})
	if err != nil {
		return err
	}
	defer func() {
		if e := gate.Close(); e != nil && err == nil {
			err = fmt.Errorf("closing %s: %w", o.Contestant, e)
		}
	}()
	if err := say(out, wire.Ready{Ready: true, Versions: Versions()}); err != nil {
		return err
	}
	lines := read(ctx, in, cancel)
	r := newRound(gate, peer, o)
	for line := range lines {
		c, err := parse(line)
		if err != nil {
			return err
		}
		if c.Quit {
			return nil
		}
		answer, err := r.run(ctx, time.Duration(c.RunMS)*time.Millisecond)
		if ctx.Err() != nil {
			return nil // the runner is gone, nobody asks any more
		}
		if err != nil {
			return fmt.Errorf("%s: %w", o.Contestant, err)
		}
		if err := say(out, answer); err != nil {
			return err
		}
	}
	return nil
}

// read passes on lines; at their end it ends what goes on as well, because
// the runner is gone.
func read(ctx context.Context, in io.Reader, cancel func()) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		for s.Scan() {
			select {
			case lines <- bytes.Clone(s.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	return lines
}

// parse reads a command; an unknown word in it is an error.
func parse(line []byte) (wire.Command, error) {
	var c wire.Command
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("malformed command %q: %w", line, err)
	}
	if !c.Quit && c.RunMS < 1 {
		return c, fmt.Errorf("malformed command %q: run_ms must be 1 or more", line)
	}
	return c, nil
}

func say(out io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("answering: %w", err)
	}
	return nil
}
