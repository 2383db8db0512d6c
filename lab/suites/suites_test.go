package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What go test -json says of a package with one test that fails, in a subtest.
const someFail = `{"Action":"start","Package":"sema/x"}
{"Action":"run","Package":"sema/x","Test":"TestGood"}
{"Action":"output","Package":"sema/x","Test":"TestGood","Output":"    x_test.go:1: the tests run on Valkey 8.0.1\n"}
{"Action":"pass","Package":"sema/x","Test":"TestGood","Elapsed":0.1}
{"Action":"run","Package":"sema/x","Test":"TestBad"}
{"Action":"run","Package":"sema/x","Test":"TestBad/part"}
{"Action":"output","Package":"sema/x","Test":"TestBad/part","Output":"    x_test.go:2: got 3\n"}
{"Action":"fail","Package":"sema/x","Test":"TestBad/part","Elapsed":0.1}
{"Action":"fail","Package":"sema/x","Test":"TestBad","Elapsed":0.1}
{"Action":"skip","Package":"sema/x","Test":"TestNot","Elapsed":0}
{"Action":"output","Package":"sema/x","Output":"FAIL\n"}
{"Action":"fail","Package":"sema/x","Elapsed":0.2}
`

func TestRead(t *testing.T) {
	var o outcome
	var printed bytes.Buffer
	o.read(strings.NewReader(someFail), &printed)
	if o.passed != 1 || o.failed != 2 || o.skipped != 1 || o.broken || o.good() {
		t.Errorf("%+v", o)
	}
	if o.version != "Valkey 8.0.1" || !slices.Equal(o.failures, []string{"TestBad/part", "TestBad"}) {
		t.Errorf("%+v", o)
	}
	if got := printed.String(); !strings.Contains(got, "got 3") || strings.Contains(got, "Valkey") {
		t.Errorf("printed\n%s", got)
	}
	o = outcome{}
	o.read(strings.NewReader("not JSON"), &printed)
	if !o.broken || o.good() {
		t.Errorf("of what is not JSON: %+v", o)
	}
	if (outcome{}).good() {
		t.Error("a suite that ran no test is good")
	}
}

// A test that was renamed must not drop out of the quick part.
func TestQuickTestsExist(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "engines", "redisengine", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	for _, name := range quickTests {
		if !strings.Contains(code.String(), "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("engines/redisengine has no %s", name)
		}
	}
}

func TestSections(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := result{"valkey-8.0", "Valkey 8.0.1", []outcome{
		{suite: "classic", passed: 7, took: 1600 * time.Millisecond},
		{suite: "redisson", passed: 3, failed: 1, failures: []string{"TestX"}},
	}}.section(now)
	for _, want := range []string{
		"## Valkey 8.0.1\n\n2026-01-02, go", "\n| classic | 7 | 0 | 0 | 2 |\n| redisson | 3 | 1 | 0 | 0 |\n", "\n- redisson: `TestX`\n",
	} {
		if !strings.Contains(good, want) {
			t.Errorf("no %q in\n%s", want, good)
		}
	}
	silent := result{"redis-8.0", "", []outcome{{suite: "classic", broken: true}}}.section(now)
	for _, want := range []string{"## redis-8.0\n", "\n| classic | 0 | broken | 0 | 0 |\n"} {
		if !strings.Contains(silent, want) {
			t.Errorf("no %q in\n%s", want, silent)
		}
	}
	page := "a\n" + begins("x") + "old\n" + ends("x") + begins("y") + "other\n" + ends("y") + "b\n"
	changed, err := replace(page, "x", "new\n")
	if want := strings.Replace(page, "old", "new", 1); err != nil || changed != want {
		t.Errorf("%v\n%s", err, changed)
	}
	if _, err := replace(page, "z", "new\n"); err == nil {
		t.Error("a server without a place in the page was accepted")
	}
}
