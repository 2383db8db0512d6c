package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// module makes a module with these files, below dir.
func module(t *testing.T, dir string, files map[string]string) {
	files["go.mod"] = "module example\n\ngo 1.26.0\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		expect.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		expect.OK(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

const (
	good = "package p\nimport \"testing\"\nfunc TestGood(t *testing.T) { t.Run(\"a\", func(t *testing.T) { t.Log(\"not applicable: no Forget\") }); t.Run(\"b\", func(*testing.T) {}) }\n"
	bad  = "package p\nimport \"testing\"\nfunc TestBad(t *testing.T) { t.Run(\"a\", func(t *testing.T) { t.Error(\"is wrong\") }) }\nfunc TestSkipped(t *testing.T) { t.Skip() }\n"
	dies = "package p\nimport \"testing\"\nfunc TestDies(t *testing.T) { panic(\"boom\") }\n"
	ends = "package p\nimport (\"os\"; \"testing\")\nfunc TestMain(*testing.M) { os.Exit(3) }\nfunc TestNever(*testing.T) {}\n"
	none = "package p\nfunc f() { undefined() }\n"
)

func TestEveryPackageIsTriedAndSummedUp(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds several programs")
	}
	dir := t.TempDir()
	one, two, three := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "three")
	module(t, one, map[string]string{"good/x_test.go": good, "bad/x_test.go": bad, "dies/x_test.go": dies, "ends/x_test.go": ends, "none/x.go": none, "none/x_test.go": good, "bare/x.go": "package p\n"})
	module(t, two, map[string]string{"x_test.go": good})
	module(t, three, map[string]string{})
	expect.OK(t, os.WriteFile(filepath.Join(three, "go.mod"), []byte("nonsense"), 0o644))

	var out bytes.Buffer
	file := filepath.Join(dir, "record.json")
	ok, err := runAll(options{modules: []string{one, two, three}, flags: []string{"-count=1"}, packages: []string{"./..."}, left: "a thing", least: 5, rounds: 2, out: file}, &out)
	expect.OK(t, err)
	text := out.String()
	for _, want := range []string{
		"is wrong", "boom", "undefined: undefined", "ok\texample/good\t", "FAIL\texample/bad\t", "FAIL\texample/none\t",
		"2 cases are not applicable", "1 skipped", "FAILED: example/bad\n", "FAILED: example/dies\n", "FAILED: example/ends\n", "FAILED: example/none\n", "FAILED: module " + three,
		"FAILED: example/bad TestBad/a\n", "4 passed, 5 failed\n", "2 of 2 rounds had failures", "failed 2 times of 2: example/dies TestDies",
		"round 2 of 2, beside busy loops: true", "not run: a thing\n", "FAILED: 4 tests passed, want at least 5",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if ok || t.Failed() {
		t.Errorf("ok: %v\n%s", ok, text)
	}
	var r record
	data, err := os.ReadFile(file)
	expect.OK(t, err)
	expect.OK(t, json.Unmarshal(data, &r))
	if len(r.Rounds) != 2 || !r.Rounds[1].Busy || r.Tests["example/bad TestBad/a"].Failures != 2 || r.Tests["example/good TestGood/b"].Runs != 2 {
		t.Errorf("recorded %s", data)
	}
}

func TestAllIsWell(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a program")
	}
	dir := t.TempDir()
	module(t, dir, map[string]string{"x_test.go": good})
	var out bytes.Buffer
	ok, err := runAll(options{modules: []string{dir}, rounds: 1}, &out)
	if !ok || err != nil || !strings.HasSuffix(out.String(), "\n2 passed, 0 failed\n") {
		t.Errorf("%v, %v\n%s", ok, err, &out)
	}
}
