package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/engine"
)

const pingHelp = `Ask the engine: does it answer, which version is it, how long does an answer
take, and may this connection do what sema needs? Semaphores stay as they are.

  sema ping --url redis://127.0.0.1:6379

Each line about a need begins with one of
  ok       sema has it
  risk     sema works, but can lose permits or speed
  unknown  this connection cannot find out
  missing  sema does not work, or not all of it; the exit code is 69

A server with tokens writes a line into its audit log if the token is not an
admin's: ping asks for the rights that it may lack.`

func (p *program) pingCommand() *cobra.Command {
	cmd := p.newCommand("ping [flags]", "Check the engine: answer time, version, rights", pingHelp,
		func(cmd *cobra.Command, _ []string) error { return p.ping(cmd.Context()) })
	p.jsonFlag(cmd, `ping prints an object:
  engine (file, redis, sentinel, cluster, postgres, http), address (without
    secrets), version ("": the engine does not tell it; of files the type of the
    file system), round_trip_seconds (median of nine)
  checks: list of what, state (ok, risk, unknown, missing), detail, try`)
	return cmd
}

// The states of a check.
const (
	checkOK      = "ok"
	checkRisk    = "risk"
	checkUnknown = "unknown"
	checkMissing = "missing"
)

// check is one need of sema, and whether an engine meets it.
type check struct {
	What   string `json:"what"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Try    string `json:"try"`
}

type pingJSON struct {
	Engine    string  `json:"engine"`
	Address   string  `json:"address"`
	Version   string  `json:"version"`
	RoundTrip float64 `json:"round_trip_seconds"`
	Checks    []check `json:"checks"`
}

// pinged is an engine as ping asks it.
type pinged interface {
	// look fails as the commands fail that look at a semaphore: with an *engine.Error.
	look(ctx context.Context) error
	// trip asks the cheapest question. An answer that refuses it is an answer.
	trip(ctx context.Context) error
	// checks returns the version, "" if the engine does not tell it, and what sema needs.
	checks(ctx context.Context) (version string, list []check)
	// close frees what it opened itself.
	close()
}

// pingTrips is how many round trips are measured; an odd number.
const pingTrips = 9

func (p *program) ping(ctx context.Context) error {
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	ctx, cancel := context.WithTimeout(ctx, 2*callTime)
	defer cancel()
	of := p.pinged(at)
	defer of.close()
	failed := of.look(ctx)
	if failure, ok := errors.AsType[*engine.Error](failed); ok && failure.Temporary {
		return failed
	}
	doc := pingJSON{Engine: at.kind, Address: at.shown()}
	trip, err := medianTrip(ctx, of.trip)
	switch {
	case err != nil && failed != nil: // which says more of the same
		return failed
	case err != nil:
		return unreachable("ping", "", &engine.Error{Op: "ping", Err: err, Hint: "check that the server runs and the address is right"})
	}
	doc.RoundTrip = trip.Seconds()
	doc.Version, doc.Checks = of.checks(ctx)
	missing := func(c check) bool { return c.State == checkMissing }
	if failed != nil && !slices.ContainsFunc(doc.Checks, missing) {
		doc.Checks = append(doc.Checks, checkOf("look at a semaphore", failed))
	}
	for i := range doc.Checks {
		doc.Checks[i].Detail = p.clean(doc.Checks[i].Detail)
	}
	if err := p.writePing(doc); err != nil {
		return err
	}
	if first := slices.IndexFunc(doc.Checks, missing); first >= 0 {
		c := doc.Checks[first]
		return &exit{exitUnreachable, usage(c.Try, "sema cannot %s here: %s", c.What, c.Detail)}
	}
	return nil
}

// pinged is the engine that at opened.
func (p *program) pinged(at *openEngine) pinged {
	name := "sema-ping-" + strings.ToLower(rand.Text()[:8])
	looks := pingLook{at.Engine, name}
	switch at.kind {
	case "file":
		return &pingFiles{looks, at.dir}
	case "http":
		return newPingServer(at.address, p.getenv("SEMA_SERVER_TOKEN"))
	case "postgres":
		return &pingPostgres{looks, at.pool, at.pg}
	}
	return &pingRedis{looks, at}
}

// pingLook looks at a semaphore that nobody uses.
type pingLook struct {
	engine sema.Engine
	name   string
}

func (l pingLook) look(ctx context.Context) error { return look(ctx, l.engine, "ping", l.name) }

func (pingLook) close() {}

// medianTrip measures round trips. The first one may open a connection and does not count.
func medianTrip(ctx context.Context, trip func(context.Context) error) (time.Duration, error) {
	var all []time.Duration
	for range pingTrips + 1 {
		began := time.Now()
		if err := trip(ctx); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	all = all[1:]
	slices.Sort(all)
	return all[pingTrips/2], nil
}

// checkOf is a check that err failed; nil: it is ok.
func checkOf(what string, err error) check {
	if err == nil {
		return check{What: what, State: checkOK}
	}
	c := check{What: what, State: checkMissing}
	c.Detail, c.Try = engine.WithoutHint(err)
	return c
}

// shown is the address of the engine, without user, password and options.
func (at *openEngine) shown() string {
	return cmp.Or(at.dir, strings.TrimPrefix(at.where(), at.kind+" "))
}

func (p *program) writePing(doc pingJSON) error {
	if p.json {
		return p.writeJSON(doc)
	}
	return p.write("%s", aligned(func(t io.Writer) {
		version := printable(cmp.Or(doc.Version, "unknown"), 60)
		fmt.Fprintf(t, "engine\t%s %s\nversion\t%s\nround trip\t%.2f ms, median of %d\n", doc.Engine, doc.Address, version, doc.RoundTrip*1000, pingTrips)
		for _, c := range doc.Checks {
			line := c.What
			if c.Detail != "" {
				line += ": " + c.Detail
			}
			if c.Try != "" {
				line += ". Try: " + c.Try
			}
			fmt.Fprintf(t, "%s\t%s\n", c.State, line)
		}
	}))
}
