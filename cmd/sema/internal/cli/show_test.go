package cli

import (
	"strings"
	"testing"

	"sema/engine"
)

// Operators see which releases share a semaphore, once there are two.
func TestShowSaysReleases(t *testing.T) {
	of := func(version string) engine.Client { return engine.Client{Host: "h", Version: version} }
	one := engine.State{Limit: 2, Holders: []engine.Holder{{ID: "a-1-1", Client: of("0.1.0")}, {ID: "b-1-1", Client: of("")}}}
	if text := table("x", one); strings.Contains(text, "releases") {
		t.Errorf("one release:\n%s", text)
	}
	two := one
	two.Waiters = []engine.Waiter{{ID: "c-1-1", Client: of("0.2.0")}, {ID: "d-1-1", Client: of("0.1.0")}}
	if text := table("x", two); !strings.Contains(text, "releases: 2 of sema 0.1.0, 1 of sema 0.2.0\n") {
		t.Errorf("two releases:\n%s", text)
	}
}
