package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"sema/engine"
	"sema/internal/view"
	"sema/watch"
)

// The looks of a line. The same is said in words or signs as well: colours may
// be missing.
const (
	plain  = ""
	bold   = "\x1b[1m"
	faint  = "\x1b[2m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	end    = "\x1b[m"
)

// View implements tea.Model.
func (m *model) View() tea.View {
	lines := m.viewList
	if m.name != "" {
		lines = m.viewOne
	}
	v := tea.NewView(strings.Join(lines(), "\n"))
	v.AltScreen = true
	return v
}

// line is one line of the screen, as wide as there is room.
func (m *model) line(look, text string) string {
	text = ansi.Truncate(text, m.width, "…")
	if look == plain {
		return text
	}
	return look + text + end
}

// fill makes a screen of a head, rows and the two lines at the bottom.
func (m *model) fill(head, rows []string, keys string, err error) []string {
	lines := append(head, rows...)
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	lines = lines[:max(0, m.height-2)]
	if err != nil {
		lines = append(lines, m.line(red, "! "+clean(view.Trouble("The store", err))))
	} else {
		lines = append(lines, m.line(yellow, m.note))
	}
	switch m.prompt.kind {
	case nothing:
		return append(lines, m.line(faint, keys))
	case sure:
		return append(lines, m.line(bold, m.prompt.text))
	}
	return append(lines, m.line(bold, m.prompt.text+m.prompt.word+"_"))
}

const (
	keysOfList = "enter show  s sort  / filter  l limit  u unset  p pause  q quit"
	keysOfOne  = "esc back  r revoke  l limit  u unset limit  p pause  q quit"
	keysOfAll  = "esc back  t by key  r revoke  l limit  u unset limit  p pause  q quit"
	keysOfKeys = "esc back  t by permit  l limit  u unset limit  p pause  q quit"
)

func (m *model) viewList() []string {
	head := fmt.Sprintf("sema top  %s  sorted by %s", m.where, m.query.Order)
	if m.query.Filter != "" {
		head += "  filter " + clean(m.query.Filter)
	}
	if m.list.total > 0 {
		head += fmt.Sprintf("  %d-%d of %d", m.query.Skip+1, m.query.Skip+len(m.list.list), m.list.total)
	}
	var rows []string
	for i, s := range m.list.list {
		if len(rows) == m.rows() {
			break
		}
		look, mark := plain, "  "
		switch {
		case i == m.at:
			look, mark = bold, "> "
		case s.Paused:
			look = yellow
		case s.Waiting > 0:
			look = red
		}
		rows = append(rows, m.line(look, mark+m.columns(Row(s))))
	}
	if len(rows) == 0 && m.list.subject.number == m.asked && m.list.err == nil {
		rows = []string{m.line(faint, "  there are no semaphores to show")}
	}
	return m.fill([]string{m.line(bold, head), m.line(faint, "  "+m.columns(Head))}, rows, keysOfList, m.list.err)
}

// Head names the columns of a Row.
var Head = [7]string{"NAME", "USE", "HELD", "LIMIT", "WAITING", "OLDEST", ""}

// Row is a semaphore as words, in the columns of Head.
func Row(s watch.Summary) [7]string {
	if s.Looked.IsZero() {
		state := "?"
		if s.Err != nil {
			state = "cannot be read"
		}
		return [7]string{clean(s.Name), "", "", "", "", "", state}
	}
	oldest, state := "-", ""
	if s.Waiting > 0 {
		oldest = Brief(s.Oldest)
	}
	for _, word := range []struct {
		is   bool
		word string
	}{{s.Err != nil, "cannot be read"}, {s.Limit == 0, "gone"}, {s.Paused, "paused"}, {s.Used > s.Limit, "lowered"}, {s.Pinned, "pinned"}} {
		if word.is {
			state = strings.TrimSpace(state + " " + word.word)
		}
	}
	return [7]string{clean(s.Name), bar(s.Used, s.Limit), fmt.Sprint(s.Used), fmt.Sprint(s.Limit), fmt.Sprint(s.Waiting), oldest, state}
}

// columns puts a row into the width there is: what is left is the name's.
func (m *model) columns(r [7]string) string {
	name := max(10, m.width-2-54)
	return fmt.Sprintf("%s %-10s %7s %7s %7s %7s %s", pad(r[0], name), r[1], r[2], r[3], r[4], r[5], r[6])
}

// bar shows used of limit in ten signs.
func bar(used, limit int) string {
	n := 0
	if limit > 0 {
		n = min(8, (min(used, limit)*8+limit-1)/limit)
	}
	return "[" + strings.Repeat("#", n) + strings.Repeat(".", 8-n) + "]"
}

// rowsOfOne is how many rows fit when one semaphore is shown: two lines are for
// the one that is selected.
func (m *model) rowsOfOne() int { return max(1, m.rows()-2) }

func (m *model) viewOne() []string {
	st := m.one.state
	head := fmt.Sprintf("%s  limit %d", clean(m.name), st.Limit)
	switch {
	case st.Limit == 0 && m.one.subject.number == 0:
		head = clean(m.name) + "  …"
	case st.Limit == 0:
		head = clean(m.name) + "  there is no such semaphore now"
	default:
		if st.Pinned {
			head += " (pinned)"
		}
		if st.Paused {
			head += " (PAUSED)"
		}
		head += fmt.Sprintf("  held %d  free %d  %d holding  %d waiting", st.Used, max(0, st.Limit-st.Used), len(st.Holders), st.Waiting())
		if text := view.Adapts(st.State); text != "" {
			head += "  " + text
		}
		for _, p := range slices.SortedStableFunc(slices.Values(st.Pools), func(a, b engine.PoolState) int { return b.Waiting - a.Waiting }) {
			head += fmt.Sprintf("  %s %d/%d", clean(p.Pool), p.Used, p.Limit) // there may be no room for all
		}
		if n := len(m.one.keys); n > 0 {
			head += fmt.Sprintf("  %d keys", n)
			if st.Caps != (engine.Caps{}) {
				head += ", caps " + st.Caps.String()
			}
		}
	}
	var rows []string
	ids := m.ids()
	for i := m.from; i < min(len(ids), m.from+m.rowsOfOne()); i++ {
		look, mark := plain, "  "
		if i == m.row {
			look, mark = bold, "> "
		} else if !m.byKey && i >= len(st.Holders) {
			look = faint
		}
		row := m.who
		if m.byKey {
			row = func(i int) string { return m.keyRow(m.one.keys[i]) }
		}
		rows = append(rows, m.line(look, mark+row(i)))
	}
	for len(rows) < m.rowsOfOne() {
		rows = append(rows, "")
	}
	keys, head2 := keysOfOne, m.wide("", "KEY", "WEIGHT", "SINCE", "LEASE", "HOST", "PID", "LABEL")
	if len(m.one.keys) > 0 {
		keys = keysOfAll
	}
	detail := m.detail
	if m.byKey {
		keys, detail, head2 = keysOfKeys, m.keyDetail, m.keyColumns("KEY", "WAITING", "LONGEST", "HELD", "CAP", "SHARE", "WHY")
	}
	if m.row < len(ids) {
		rows = append(rows, detail()...)
	}
	return m.fill([]string{m.line(bold, head), m.line(faint, "  "+head2)}, rows, keys, m.one.err)
}

// whoseWidth is how wide the column of keys is beside holders and waiters.
const whoseWidth = 12

// who describes a holder or a waiter in one line.
func (m *model) who(row int) string {
	st := m.one.state
	if row < len(st.Holders) {
		h := st.Holders[row]
		state, since := "holds", "?"
		if h.Revoked {
			state = "revoked"
		}
		if h.Token != 0 {
			since = Brief(h.Age)
		}
		return m.wide(state, keyCell(h.Key, whoseWidth), fmt.Sprint(h.Weight), since, Brief(h.Left), clean(h.Client.Host), fmt.Sprint(h.Client.PID), clean(called(h.Client)))
	}
	w := st.Waiters[row-len(st.Holders)]
	label := clean(called(w.Client))
	if w.Behind > 0 {
		label += fmt.Sprintf(" (+%d)", w.Behind)
	}
	place := st.Before[row-len(st.Holders)] + 1
	return m.wide(fmt.Sprintf("%d.", place), keyCell(w.Key, whoseWidth), fmt.Sprint(w.Weight), Brief(w.Waiting), "", clean(w.Client.Host), fmt.Sprint(w.Client.PID), label)
}

func (m *model) wide(state, key, weight, since, lease, host, pid, label string) string {
	state = pad(state, 7)
	if len(m.one.keys) > 0 {
		state += " " + pad(key, whoseWidth)
	}
	return fmt.Sprintf("%s %6s %7s %7s %s %7s %s", state, weight, since, lease, pad(host, 16), pid, label)
}

// detail is what there is to say of the row that is selected, in two lines.
func (m *model) detail() []string {
	st := m.one.state
	id := "permit " + clean(m.id())
	of := func(k engine.Key, takes engine.Pools) (text string) {
		if len(m.one.keys) > 0 {
			text = "  key " + keyName(k)
		}
		if takes != "" {
			text += "  takes " + clean(string(takes))
		}
		return text
	}
	if m.row < len(st.Holders) {
		h := st.Holders[m.row]
		text := fmt.Sprintf("token %d", h.Token)
		if h.Slot >= 0 {
			text += fmt.Sprintf(", slot %d", h.Slot)
		}
		if h.Revoked {
			text += ", revoked: its holder learns of it at its next renewal"
		}
		return []string{m.line(plain, id+of(h.Key, h.Takes)), m.line(plain, text)}
	}
	w := m.row - len(st.Holders)
	waiter := st.Waiters[w]
	return []string{m.line(plain, id+of(waiter.Key, waiter.Takes)), m.line(plain, "waits: "+clean(st.Why(waiter, st.Before[w])))}
}

// clean makes text that others wrote fit for a terminal: nothing in it moves the
// cursor.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// pad makes a text so many cells wide.
func pad(s string, width int) string {
	s = ansi.Truncate(s, width, "…")
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}

// Brief is a duration in at most seven signs.
func Brief(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", max(0, d).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// called is a client's label, and in front of it the id that its caller gave.
func called(c engine.Client) string { return strings.TrimSpace(c.Caller + " " + c.Label) }
