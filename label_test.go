package sema_test

import (
	"os"
	"path/filepath"
	"testing"

	"sema"
	"sema/engines/memengine"
)

// Operators see which program has a permit, also if its author gave no label.
func TestWithoutALabelThePermitHasTheNameOfTheProgram(t *testing.T) {
	sem, err := sema.New(memengine.New(), "db", 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sem.Close()
	if _, err := sem.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := sem.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := state.Holders[0].Client.Label, filepath.Base(os.Args[0]); got != want {
		t.Errorf("the permit has the label %q, want %q", got, want)
	}
}
