package redisson_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/redisson"
)

// The table of methods in the docs must have all of ours.
func TestDocsNameEveryMethod(t *testing.T) {
	page, err := os.ReadFile("../docs/data/redisson.md")
	expect.OK(t, err)
	for _, v := range []any{&redisson.Semaphore{}, &redisson.ExpirableSemaphore{}} {
		for m := range reflect.TypeOf(v).Methods() {
			if !strings.Contains(string(page), "."+m.Name+"(") {
				t.Errorf("docs/data/redisson.md lacks %T.%s", v, m.Name)
			}
		}
	}
}
