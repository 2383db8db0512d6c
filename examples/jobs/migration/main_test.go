//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"sema"
	"sema/examples/internal/page"
	"sema/internal/fixture/local"
	"sema/sematest"
)

func TestMain(m *testing.M) {
	if os.Getenv("HOST") != "" { // started by the demo
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := demo(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	page.Shows(t, "../../../docs/jobs.md", "cd examples/jobs && go run ./migration", out.String())
}

// Many hosts at once, each of which loses its permit after its first step: all
// steps are done, each once, and nobody goes on without a permit.
func TestEveryHostLosesItsPermit(t *testing.T) {
	db, err := local.Postgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Stop()
	engine, lost := sematest.New(t), make(chan sema.Event)
	sem, err := sema.New(engine, "migration", 1, &sema.Options{Observer: sema.Observer{Lost: func(l sema.Event) { go func() { lost <- l }() }}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sem.Close() }()
	type outcome struct {
		did []string
		err error
	}
	ended := make(chan outcome)
	const hosts = 6
	for range hosts {
		go func() {
			var o outcome
			o.err = migrate(t.Context(), sem, db.Address, steps, nil, func(s step) {
				o.did = append(o.did, s.name)
				engine.Lose("migration")
				<-lost // its contexts have ended
			})
			ended <- o
		}()
	}
	did := map[string]int{}
	for range hosts {
		o := <-ended
		for _, name := range o.did {
			did[name]++
		}
		if lost := errors.Is(o.err, sema.ErrLost); len(o.did) > 1 || o.err != nil && !lost && len(o.did) == 1 || o.err != nil && len(o.did) == 0 {
			t.Errorf("a host did %q: %v", o.did, o.err)
		}
	}
	for _, s := range steps {
		if did[s.name] != 1 {
			t.Errorf("%s was done %d times", s.name, did[s.name])
		}
	}
}

// The database judges by the token alone.
func TestAnOlderTokenIsRefused(t *testing.T) {
	db, err := local.Postgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Stop()
	conn, err := connect(t.Context(), db.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	for _, tt := range []struct {
		token int64
		step  int
		did   bool
		err   error
	}{{5, 0, true, nil}, {5, 0, false, nil}, {7, 1, true, nil}, {5, 2, false, errFenced}, {6, 2, false, errFenced}, {7, 2, true, nil}} {
		if did, err := carryOut(t.Context(), conn, tt.token, steps[tt.step], func(pgx.Tx) error { return nil }); did != tt.did || !errors.Is(err, tt.err) {
			t.Errorf("token %d, %s: %v, %v; want %v, %v", tt.token, steps[tt.step].name, did, err, tt.did, tt.err)
		}
	}
}
