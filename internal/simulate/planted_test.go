package simulate

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// planted are bugs of one line, each in the client or the ledger, that the
// simulator must find. The line old must stand in the file once.
var planted = []struct{ what, file, old, new string }{
	{"grants one more than the limit", ledgerFile, "if first && !l.paused && r.ID.Weight <= l.limit-l.used {", "if first && !l.paused && r.ID.Weight <= l.limit-l.used+1 {"},
	{"a renewal revives", ledgerFile, "\tcase h == nil:\n\t\treturn engine.Answer{Status: engine.Gone}\n\tcase h.revoked:\n\t\treturn engine.Answer{Status: engine.Revoked}\n\t}\n\tl.untell", "\tcase h == nil:\n\t\treturn l.ask(now, engine.Client{}, r)\n\tcase h.revoked:\n\t\treturn engine.Answer{Status: engine.Revoked}\n\t}\n\tl.untell"},
	{"a counter as token", ledgerFile, "l.token = max(l.token+1, now)", "l.token++"},
	{"a grant is not told", queueFile, "n.Grants = append(n.Grants, engine.Grant{ID: h.id, Token: h.token, Slot: h.slot, Ticket: t.end})", "_, _ = n, h"},
	{"free weight is not handed over", ledgerFile, "\tl.grant(now, last)\n\tl.watch(now, asker)", "\tl.watch(now, asker)"},
	{"the queue is last in, first out", ledgerFile, "place := now - r.Waited.Microseconds()", "place := -now"},
	{"newcomers pass the queue", ledgerFile, "first := r.Unfair ||", "first := true ||"},
	{"a heavy ticket is passed over", queueFile, "\t\tif !over && !tooHeavy && t.id.Weight > l.limit-l.used {\n\t\t\treturn", "\t\tif !over && !tooHeavy && t.id.Weight > l.limit-l.used {\n\t\t\tl.drop(t.id)\n\t\t\treturn"},
	{"leases end early", ledgerFile, "for len(l.ends) > 0 && l.ends[0].end <= now {", "for len(l.ends) > 0 && l.ends[0].end <= now+50_000 {"},
	{"a slot is given twice", ledgerFile, "for h.slot = 0; l.slots[h.slot] != nil; h.slot++ {", "for h.slot = 0; h.slot > 0 && l.slots[h.slot] != nil; h.slot++ {"},
	{"weights are counted as one when they come back", ledgerFile, "l.used -= h.id.Weight", "l.used--"},
	{"late copies of calls count", ledgerFile, "return c.Number < f.number && now < f.end", "return false && c.Number < f.number && now < f.end"},
	{"a hand-off lasts a moment, and the client does not know", queueFile, "h := l.take(now, t.leaseEnd(now), t.id, t.detached, t.who)", "h := l.take(now, now+1, t.id, t.detached, t.who)"},
	{"a lease counts from the answer", answerFile, "m.grant(now, c, answer.Token, answer.Slot, m.sent, answer.Lease)", "m.grant(now, c, answer.Token, answer.Slot, now+m.cfg.Margin, answer.Lease)"},
	{"a renewal counts beyond its lease", answerFile, "m.validUntil(c, m.sent+answer.Lease-m.cfg.Margin)\n\t\tif used", "m.validUntil(c, now+answer.Lease)\n\t\tif used"},
	{"a cancelled wait is not given back", claimFile, "\tif touched {\n\t\tm.giveBack(c)", "\tif touched && false {\n\t\tm.giveBack(c)"},
	{"a retry asks under another name", answerFile, "\tif failure.Temporary && now-c.since < patience ||", "\tif a := c.holder; a != nil {\n\t\tm.end(c)\n\t\tm.askAnew(a)\n\t\treturn false\n\t}\n\tif failure.Temporary && now-c.since < patience ||"},
	{"the grant of an older ticket counts", timeFile, "|| g.Ticket < c.ticket {", "{"},
	{"a hand-off that lapsed is given to its caller", answerFile, "if now >= c.valid || c.short && m.cfg.Renew == 0 {", "if c.short && m.cfg.Renew == 0 {"},
	{"a waiter asks once and never again", answerFile, "c.due = m.sent + m.askEvery()\n", "c.due = never\n"},
	{"a slot of a grant that lapsed is kept", answerFile, "\t\tcase !c.issued() && !c.kept:\n", "\t\tcase c.state != Held:\n"},
	{"what waits for the call in flight is forgotten", answerFile, "\t\t\tif !c.issued() && !c.kept { // and has to be renewed, which waited for this call\n\t\t\t\tm.push(c)\n\t\t\t}\n", ""},
	{"nobody is told that another client waits", ledgerKeepFile, "if told < maxTold {", "if told < maxTold && of != engine.RecallKept {"},
	{"everybody may keep, though others wait", ledgerKeepFile, "\tif l.othersWait() {\n\t\tleave = engine.Pass", "\tif false && l.othersWait() {\n\t\tleave = engine.Pass"},
	{"a pause is told to nobody", ledgerKeepFile, "if told < maxTold {", "if told < maxTold && of != engine.RecallAll {"},
	{"what may be kept during a pause", ledgerKeepFile, "keep <= 0 || l.stopped() ||", "keep <= 0 ||"},
	{"a pause grants all the same", queueFile, "for len(l.queue) > 0 && !l.paused {", "for len(l.queue) > 0 {"},
	{"a recall is forgotten when an older reply comes", answerFile, "m.allow(overrule(reply.Leave, m.overruled), m.sent+m.contact())", "m.allow(reply.Leave, m.sent+m.contact())"},
	{"permits are passed on for as long as they last", keepFile, "m.leave != engine.GiveBack && now < m.leaveUntil && !m.closed", "m.leave != engine.GiveBack && !m.closed"},
	{"permits are passed on without end", keepFile, "c.passes < m.cfg.Passes", "m.cfg.Passes > 0"},
	{"a passed permit keeps its token", keepFile, "c.token = max(c.token+1, c.granted+(now-c.received).Microseconds())", "_ = now"},
	{"nobody reports the tokens of passed permits", claimFile, "\tif c.token > c.granted {\n\t\treturn c.token", "\tif false && c.token > c.granted {\n\t\treturn c.token"},
	{"a permit goes to the caller that asked, not to the oldest", claimFile, "mine, first := c.holder, m.oldest(c.id.Weight)", "mine, first := c.holder, c.holder"},
	{"moved tickets are never corrected", callFile, "\tif m.moved && m.leave != engine.Keep {", "\tif false && m.leave != engine.Keep {"},
	{"what is kept is kept for good", keepFile, "\t\tif c := m.kept[i]; now >= c.keepUntil {", "\t\tif c := m.kept[i]; now < 0 {"},
	{"whom no notification reaches never gets a turn", ledgerFile, "t.insist = t.insist || r.Again && !l.hears(l.caller)", "t.insist = false"},
	{"a hand-off counts before a replica has it", timeFile, "if g.Unsure {", "if false && g.Unsure {"},
	{"a fence is forgotten", answerFile, "m.fence = m.fence || !failure.NotExecuted", "m.fence = false"},
}

const (
	ledgerFile     = "internal/ledger/ledger.go"
	queueFile      = "internal/ledger/queue.go"
	ledgerKeepFile = "internal/ledger/keep.go"
	claimFile      = "internal/client/claim.go"
	callFile       = "internal/client/call.go"
	keepFile       = "internal/client/keep.go"
	machineFile    = "internal/client/machine.go"
	answerFile     = "internal/client/answer.go"
	timeFile       = "internal/client/time.go"
)

var (
	starts = flag.Int("starts", 1, "for how many starting seeds each planted bug is searched")
	table  = flag.String("table", "", "write how many seeds each planted bug took to this file")
)

// TestPlantedBugsAreFound builds the simulator with one bug at a time.
func TestPlantedBugsAreFound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]string, len(planted))
	t.Run("each", func(t *testing.T) {
		for i, bug := range planted {
			t.Run(bug.what, func(t *testing.T) {
				t.Parallel()
				program := build(t, root, bug.file, bug.old, bug.new)
				var took []int
				for start := range *starts {
					took = append(took, search(t, program, 1_000_000*(start+1)))
				}
				slices.Sort(took)
				rows[i] = fmt.Sprintf("| %s | %s | %d | %d |\n", bug.what, filepath.Base(bug.file), took[len(took)/2], took[len(took)-1])
			})
		}
	})
	if *table != "" && !t.Failed() {
		head := "| bug | file | seeds until found, median | at the most |\n|---|---|---:|---:|\n"
		if err := os.WriteFile(*table, []byte(head+strings.Join(rows, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// build makes the simulator with one change to one file.
func build(t *testing.T, root, file, old, with string) string {
	t.Helper()
	path, dir := filepath.Join(root, file), t.TempDir()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), old); n != 1 {
		t.Fatalf("%s has %q %d times", file, old, n)
	}
	changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulate")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{changed: []byte(strings.Replace(string(source), old, with, 1)), overlay: replace} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./internal/simulate/run")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

var failing = regexp.MustCompile(`(?m)^seed ([0-9]+): `)

// search runs seeds one after the other until one fails, and returns how many
// that took.
func search(t *testing.T, program string, first int) int {
	t.Helper()
	const most = 20_000
	cmd := exec.Command(program, "-seed", strconv.Itoa(first), "-seeds", strconv.Itoa(most), "-for", "100s")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	out, _ := cmd.CombinedOutput() // it fails if it finds something
	found := failing.FindSubmatch(out)
	if found == nil {
		t.Errorf("not found:\n%s", out)
		return most
	}
	seed, _ := strconv.Atoi(string(found[1]))
	return seed - first + 1
}
