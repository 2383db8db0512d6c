package fileengine

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/stall"
	"sema/internal/fixture/versions"
	"sema/internal/protocol"
)

// releaseRole is a process of a release with a given newest form.
const releaseRole = "fileengine release"

type release struct {
	Dir    string
	Newest int
	Work   versions.Work
}

func init() {
	child.Role(releaseRole, func(r release) error {
		e, err := New(r.Dir, nil)
		if err != nil {
			return err
		}
		e.newest = r.Newest
		return errors.Join(r.Work.Serve(e), e.Close())
	})
}

// formOf returns the form of the log of the semaphore x.
func formOf(t testing.TB, dir string) int {
	b, err := os.ReadFile(logOf(dir))
	expect.OK(t, err)
	form, _, _ := readForm(b)
	return form
}

// Programs of two successive releases share a directory during an upgrade and during its
// reversal, without errors. The log changes to the newer form when the older release has
// been absent for a while, and back when it returns.
func TestReleasesShareADirectory(t *testing.T) {
	stall.Run(t, func(t *stall.Case) { // leases last 3 s
		dir := t.TempDir()
		crew := versions.NewCrew(t, versions.Work{Name: "x", Limit: 3, Callers: 4, Keeps: 1})
		start := func(newest int) func(versions.Work) *exec.Cmd {
			return func(w versions.Work) *exec.Cmd {
				cmd, err := child.Command(releaseRole, release{dir, newest, w})
				expect.OK(t, err)
				return cmd
			}
		}
		const older, newer = newestForm, newestForm + 1
		inForm := func(form int) func() bool { return func() bool { return formOf(t, dir) == form } }

		first, second := crew.Join(start(older)), crew.Join(start(older))
		third := crew.Join(start(newer)) // the upgrade begins
		first.Leave()
		fourth := crew.Join(start(newer))
		second.Leave()
		if got := formOf(t, dir); got != older {
			t.Errorf("the log is in form %d although the older release is present", got)
		}
		sign := (&Engine{dir: dir}).formFile(older)
		long := time.Now().Add(-knownFor - time.Minute)
		expect.OK(t, os.Chtimes(sign, long, long))
		expect.Until(t, "the log is in the newer form", inForm(newer))

		fifth := crew.Join(start(older)) // is served, although it cannot read the newer form
		expect.Until(t, "the log is in the older form again", inForm(older))
		third.Leave()
		sixth := crew.Join(start(older))
		fourth.Leave()
		fifth.Leave()
		sixth.Leave()
		crew.Judge()
	})
}

// The engine does not change a log in an unknown form. The error names the release that
// wrote it, and is temporary.
func TestALogOfALaterForm(t *testing.T) {
	for _, line := range []string{"sema log 9\n", "sema log 10 0.7.1\n", "sema log 4 0.0.1\n"} {
		dir := t.TempDir()
		expect.OK(t, os.WriteFile(logOf(dir), []byte(line+"hello"), 0o600))
		u := openUser(t, openEngine(t, dir), "x", 1)
		_, err := u.call(u.ask(false))
		var e *engine.Error
		var unknown *formError
		if !errors.As(err, &unknown) || !errors.As(err, &e) || !e.Temporary || !e.NotExecuted || e.Hint == "" {
			t.Errorf("%q: error %#v", line, err)
			continue
		}
		for _, word := range append(strings.Fields(line)[2:], "sema "+engine.Version, "form 5") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q: %q has no %q", line, err, word)
			}
		}
		if b, err := os.ReadFile(logOf(dir)); err != nil || string(b) != line+"hello" {
			t.Errorf("%q became %q, %v", line, b, err)
		}
	}
}

// A file with an invalid first line is a damaged log.
func TestTheLineOfALog(t *testing.T) {
	for text, want := range map[string]int{
		"sema log 5 0.1.0\nx": 5, "sema log 5\nx": 5, "sema log 12 0.2.0-rc.1\nx": 12,
		"": 0, "sema log 5": 0, "sema log \n": 0, "sema log x\n": 0, "sema log 0\n": 0, "sema log -1\n": 0, "semi log 5\n": 0,
		"sema log 5 " + strings.Repeat("0", maxForm) + "\n": 0, "sema log 5 \x1b[2J\n": 0,
	} {
		form, _, rest := readForm([]byte(text))
		if form != want || want != 0 && string(rest) != "x" {
			t.Errorf("%q: form %d, rest %q", text, form, rest)
		}
	}
}

// The logs of all releases stay readable.
func TestFormsOfLogs(t *testing.T) {
	for _, name := range []string{"form5"} {
		b := versions.Fixture(t, name+".log", func() []byte {
			dir := t.TempDir()
			a, b := openUser(t, openEngine(t, dir), "x", 2), openUser(t, openEngine(t, dir), "x", 2)
			a.take(t)
			expect.OK(t, b.release(b.take(t)))
			b.take(t)
			for _, u := range []*user{a, b} {
				if status := u.status(t, u.ask(true)); status != protocol.Queued {
					t.Fatal(status)
				}
			}
			keyed := a.ask(true)
			keyed.Key, keyed.Caps = "acme", engine.Caps{1}
			a.status(t, keyed)
			a.status(t, protocol.Request{Kind: protocol.Report, Totals: &protocol.Totals{Good: 5, Bad: 2, Waited: 1}})
			a.status(t, protocol.Request{Kind: protocol.SetLimit, Limit: 2, Pin: true})
			text, err := os.ReadFile(logOf(dir))
			expect.OK(t, err)
			return text
		})
		m, err := readImage(b, newestForm)
		if err != nil || m.end != int64(len(b)) {
			t.Fatalf("%s: %v, %d of %d bytes", name, err, m.end, len(b))
		}
		versions.Reads(t, name+".json", m.ledger.Save())
	}
}

// A change of the layout of logs requires the next number for newestForm, and a new digest
// in this test.
func TestALayoutOfLogsHasItsNumber(t *testing.T) {
	digests := map[int]string{5: "73c3ab55ad7a9595"}
	kinds := ""
	for k := protocol.Ask; !strings.HasPrefix(k.String(), "Kind("); k++ {
		kinds += k.String() + " "
	}
	header := versions.Digest(func(h header) []byte { return h.encode() })
	got := versions.Digest(func(r record) []byte { return append(r.encode(), header+kinds...) })
	if want := digests[newestForm]; got != want {
		t.Errorf("form %d has the digest %q, not %q: a new layout needs a new number, see CONTRIBUTING.md", newestForm, got, want)
	}
}
