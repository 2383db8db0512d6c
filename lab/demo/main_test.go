package main

import (
	"html"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

var (
	typed    = regexp.MustCompile(`(?m)^type '(.*)'`)
	text     = regexp.MustCompile(`<text( class="typed")?[^>]*>(.*)</text>`)
	tag      = regexp.MustCompile(`<[^>]*>`)
	duration = regexp.MustCompile(`animation: ([0-9.]+)s`)
	appears  = regexp.MustCompile(`hidden } ([0-9.]+)%`)
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + path)
	expect.OK(t, err)
	return string(b)
}

// The picture is of the script that make demo plays: the same lines are typed, and job-3
// has the permit of job-1 once job-1 is killed.
func TestThePictureIsOfTheScript(t *testing.T) {
	var want, got, holders []string
	for _, m := range typed.FindAllStringSubmatch(read(t, "scripts/demo/play.sh"), -1) {
		want = append(want, m[1])
	}
	picture, holds := read(t, "docs/demo.svg"), false
	for _, m := range text.FindAllStringSubmatch(picture, -1) {
		line := html.UnescapeString(tag.ReplaceAllString(m[2], ""))
		if m[1] != "" {
			got = append(got, strings.TrimPrefix(line, "$ "))
			continue
		}
		words := strings.Fields(line)
		switch {
		case words[0] == "HOLDER":
			holds = true
		case words[0] == "WAITER":
			holds = false
		case holds:
			holders = append(holders, words[len(words)-1])
		}
	}
	if len(want) < 3 || !slices.Equal(got, want) {
		t.Errorf("docs/demo.svg types %q, scripts/demo/play.sh %q; try: make recording", got, want)
	}
	if want := []string{"job-1", "job-2", "job-2", "job-3"}; !slices.Equal(holders, want) {
		t.Errorf("holders %q, not %q", holders, want)
	}
}

// A reader does not wait for the picture: it takes 20 s at most, and for a third of that
// at most nothing new appears.
func TestThePictureKeepsNobodyWaiting(t *testing.T) {
	picture := read(t, "docs/demo.svg")
	m := duration.FindStringSubmatch(picture)
	if m == nil {
		t.Fatal("no duration")
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	expect.OK(t, err)
	if seconds <= 0 || seconds > 20 {
		t.Errorf("the picture takes %g s", seconds)
	}
	before, first := 0.0, true
	for _, m := range appears.FindAllStringSubmatch(picture, -1) {
		at, err := strconv.ParseFloat(m[1], 64)
		expect.OK(t, err)
		if most := 33.0; at-before > most || first && at > 2 {
			t.Errorf("nothing new from %g to %g %%", before, at)
		}
		before, first = at, false
	}
	if first || 100-before > 33 {
		t.Errorf("the last text appears at %g %%", before)
	}
}

// Text appears at the time at which it was printed, and keeps its spaces.
func TestDraw(t *testing.T) {
	got, err := draw([]write{{0, prompt + afterPrompt + " ls"}, {1e9, " -l\n"}, {1.01e9, "a  <b>\n"}, {3e9, "c\n"}, {at: 4e9}})
	expect.OK(t, err)
	for _, want := range []string{
		`<tspan>$</tspan><tspan> ls</tspan><tspan class="k0"> -l</tspan>`, `<tspan class="k0">a  &lt;b&gt;</tspan>`, `<tspan class="k1">c</tspan>`,
		"@keyframes k0 { 0% { visibility: hidden } 25.00%", "@keyframes k1 { 0% { visibility: hidden } 75.00%", "animation: 4.0s step-end infinite",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the picture lacks %q:\n%s", want, got)
		}
	}
}
