package redisengine

import (
	"regexp"
	"slices"
	"testing"
)

// Each word that is looked up costs whenever the script runs.
func TestTheScriptHasWhatItsWordsMean(t *testing.T) {
	source, _ := step()
	left := regexp.MustCompile(`(?m)^local [A-Z][A-Z_].*`).FindAllString(source.(string), -1)
	if len(left) != 1 || !slices.Contains(left, `local INTEGER = string.format('%d', 4294967296) == '4294967296' and '%d' or '%.0f'`) {
		t.Errorf("the script has %q, want only what is neither a number nor a string", left)
	}
	got := meant("local ONE, TWO = 1, 'it\\'s' -- why\nlocal MADE = f()\nlocal POWER = 2^50\n", "A.ONE(KEYS, TWO)\n"+wordsHere+"ONES POWER MADE")
	if want := "A.1(KEYS, 'it\\'s')\nlocal MADE = f()\nONES 2^50 MADE"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
