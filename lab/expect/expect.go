// Package expect is what tests say again and again: this must succeed, and this
// must become true.
package expect

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Patience bounds every wait of a test. Nothing is asserted about it but that it
// suffices, on the slowest machine too.
const Patience = time.Minute

// OK ends the test if there is an error.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Is ends the test if the error is not the one wanted, in the sense of errors.Is.
func Is(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Fatalf("error %v; want %v", err, want)
	}
}

// Until asks again and again for what no event tells. It ends the test if that
// has not become true after Patience. It asks the less often the longer it lasts:
// what it waits for wants the processor, too. In a bubble of testing/synctest it
// waits in virtual time.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); {
		past := time.Since(began)
		if past > Patience {
			tb.Fatalf("%s: not so after %v", what, Patience)
		}
		time.Sleep(min(2*time.Millisecond+past/20, 50*time.Millisecond))
	}
}

// Within is a context that ends after Patience, and with the test.
func Within(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	tb.Cleanup(cancel)
	return ctx
}
