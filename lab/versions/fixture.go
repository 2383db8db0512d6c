package versions

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sema/lab/expect"
)

// makeFixtures has Fixture write what is missing. What is there is never written again.
const makeFixtures = "SEMA_MAKE_FIXTURES"

// Fixture is a file of testdata that some release wrote, and that all later ones can read.
// With SEMA_MAKE_FIXTURES=1 a file that is missing is made.
func Fixture(tb testing.TB, name string, write func() []byte) []byte {
	tb.Helper()
	path := filepath.Join("testdata", name)
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) && os.Getenv(makeFixtures) != "" {
		b = write()
		expect.OK(tb, os.MkdirAll("testdata", 0o750))
		err = os.WriteFile(path, b, 0o600)
	}
	expect.OK(tb, err)
	return b
}

// Reads wants what was read from a fixture to be what it was when the fixture was made:
// that is in a fixture beside it, as JSON. Fields that came later are zero.
func Reads[V any](tb testing.TB, name string, got V) {
	tb.Helper()
	text := Fixture(tb, name, func() []byte {
		b, err := json.MarshalIndent(got, "", " ")
		expect.OK(tb, err)
		return append(b, '\n')
	})
	var want V
	expect.OK(tb, json.Unmarshal(text, &want))
	if !reflect.DeepEqual(got, want) {
		again, _ := json.MarshalIndent(got, "", " ")
		tb.Errorf("%s: a fixture reads otherwise than it did:\n%s", name, again)
	}
}
