package redisengine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sema/engine"
)

// Each local that is left in the script costs whenever the script runs.
func TestTheScriptHasWhatItsWordsMean(t *testing.T) {
	source, _ := step()
	left := regexp.MustCompile(`(?m)^local [A-Z][A-Z_].*`).FindAllString(source.(string), -1)
	if len(left) != 1 || !slices.Contains(left, `local INTEGER = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'`) {
		t.Errorf("the script has %q, want only what is neither a number nor a string", left)
	}
	got := inlined("local ONE, TWO = 1, 'it\\'s' -- why\nlocal MADE = f()\nlocal POWER = 2^50\n", "A.ONE(KEYS, TWO)\n"+layoutPlace+"ONES POWER MADE")
	if want := "A.1(KEYS, 'it\\'s')\nlocal MADE = f()\nONES 2^50 MADE"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A change of the data in Redis needs the next number in MARK, and its digest
// here.
func TestALayoutOfStatesHasItsNumber(t *testing.T) {
	digests := map[string]string{"sem1": "ecef2d387885e649"}
	if !strings.Contains(lua("layout"), "\nlocal MARK = '"+mark+"'\n") {
		t.Errorf("MARK is not %s, which is mark", mark)
	}
	const stored = `(?m)^local (STATE|COOLDOWN|PERMIT|TICKET|TAIL|PERMIT_SIZE, TICKET_SIZE|KEYED|KEY|KEY_SIZE|TURN|KEPT|FENCE|TOTALS|REPORT|AUTO) = (.*?) *(--.*)?$`
	hash := sha256.New()
	for _, found := range regexp.MustCompile(stored).FindAllStringSubmatch(lua("layout"), -1) {
		fmt.Fprintln(hash, found[1], found[2])
	}
	if got, want := fmt.Sprintf("%.8x", hash.Sum(nil)), digests[mark]; got != want {
		t.Errorf("%s has the digest %q, not %q: a new layout needs a new mark, see CONTRIBUTING.md", mark, got, want)
	}
}

// A tail may contain anything.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		tail string
		who  engine.Client
	}{
		{},
		{tail: "p1.1"},
		{tail: "p1.1\x00"},
		{tail: "\x00\x00"},
		{tail: "p1.1\x00p2.1\x00{"},
		{tail: "p1.1\x00\x00" + `{"host":"h","pid":1,"caller":"c","lease":7}`, who: engine.Client{Host: "h", PID: 1, Caller: "c", Lease: 7}},
	} {
		for key, entry := range map[string]string{"": "q", "acme": "Qacme\x00"} {
			if is, who := behind(entry+c.tail, 1); is.Text() != key || who != c.who {
				t.Errorf("%q: %+v, %+v; want %q, %+v", entry+c.tail, is, who, key, c.who)
			}
		}
	}
}

func TestLongDescriptionsTravelWhole(t *testing.T) {
	for _, label := range []string{"", "ü\x00\"", strings.Repeat("x", 1<<20)} {
		b := appendClient([]byte("before"), &engine.Client{Label: label})[len("before"):]
		var got engine.Client
		if n := int(binary.LittleEndian.Uint32(b)); n != len(b)-4 || json.Unmarshal(b[4:], &got) != nil || got.Label != label {
			t.Errorf("%d bytes: %d of %d, %d bytes read", len(label), n, len(b)-4, len(got.Label))
		}
	}
}
