package fileengine

import (
	"errors"
	"os"
	"strings"
	"testing"

	"sema/engine"
	"sema/internal/fixture/digest"
	"sema/internal/fixture/expect"
	"sema/internal/ledger"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// The engine does not change a log in an unknown form. The error names the release that
// wrote it, and is temporary.
func TestALogOfAnotherForm(t *testing.T) {
	for _, line := range []string{"sema log 9\n", "sema log 10 0.7.1\n"} {
		dir := t.TempDir()
		expect.OK(t, os.WriteFile(logOf(dir), []byte(line+"hello"), 0o600))
		u := openUser(t, openEngine(t, dir), "x", 1)
		_, err := u.call(u.ask(false))
		var e *engine.Error
		if !errors.Is(err, ledger.ErrForm) || !errors.As(err, &e) || !e.Temporary || !e.NotExecuted || e.Hint == "" {
			t.Errorf("%q: error %#v", line, err)
			continue
		}
		expect.Has(t, err.Error(), append(strings.Fields(line)[2:], "sema "+engine.Version, "form 1")...)
		if b, err := os.ReadFile(logOf(dir)); err != nil || string(b) != line+"hello" {
			t.Errorf("%q became %q, %v", line, b, err)
		}
	}
}

// A file with an invalid first line is a damaged log.
func TestTheLineOfALog(t *testing.T) {
	for text, want := range map[string]error{
		"sema log 1 0.1.0\nx": nil, "sema log 1\nx": nil, "sema log 12 0.2.0-rc.1\nx": ledger.ErrForm,
		"": errDamaged, "sema log 1": errDamaged, "sema log \n": errDamaged, "sema log x\n": errDamaged, "sema log 0\n": errDamaged, "sema log -1\n": errDamaged, "semi log 1\n": errDamaged,
		"sema log 1 " + strings.Repeat("0", maxLine) + "\n": errDamaged, "sema log 1 \x1b[2J\n": errDamaged,
	} {
		rest, err := readLine([]byte(text))
		if !errors.Is(err, want) || want == nil && string(rest) != "x" {
			t.Errorf("%q: %v, rest %q", text, err, rest)
		}
	}
}

// A change of the layout of logs needs the next number in form, and its digest here.
func TestALayoutOfLogsHasItsNumber(t *testing.T) {
	digests := map[int]string{1: "365211dd9ce5d622"}
	kinds := ""
	for k := protocol.Ask; !strings.HasPrefix(k.String(), "Kind("); k++ {
		kinds += k.String() + " "
	}
	header := digest.Of(func(h header) []byte { return pack.Append(nil, h.code) })
	got := digest.Of(func(r record) []byte { return append(pack.Append(nil, r.code), header+kinds...) })
	if want := digests[form]; got != want {
		t.Errorf("form %d has the digest %q, not %q: a new layout needs a new number, see CONTRIBUTING.md", form, got, want)
	}
}
