package top

import (
	"context"
	"slices"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"sema"
	"sema/engine"
)

// key does what a key says.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	if k.String() == "ctrl+c" {
		return tea.Quit
	}
	if k.String() == "ctrl+z" {
		return tea.Suspend
	}
	if m.prompt.kind != nothing {
		m.answer(k)
		return nil
	}
	m.note = ""
	switch k.String() {
	case "q":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup", "ctrl+b":
		m.move(-m.rows())
	case "pgdown", "ctrl+f", "space":
		m.move(m.rows())
	case "home", "g":
		m.move(-1 << 30)
	case "end", "G":
		m.move(1 << 30)
	case "p", "l", "u":
		m.operate(k.String())
	default:
		if m.name == "" {
			m.keyOfList(k.String())
		} else {
			m.keyOfOne(k.String())
		}
	}
	return nil
}

func (m *model) keyOfList(k string) {
	switch k {
	case "enter", "right":
		if s, _ := m.cursor(); s.Name != "" {
			m.name, m.one, m.row, m.from, m.byKey = s.Name, page{}, 0, 0, false
			m.ask()
		}
	case "s":
		m.query.Order = Orders[(slices.Index(Orders, m.query.Order)+1)%len(Orders)]
		m.top()
	case "/":
		m.prompt = prompt{kind: filtering, text: "filter: ", word: m.query.Filter}
	case "esc":
		m.query.Filter = ""
		m.top()
	}
}

func (m *model) keyOfOne(k string) {
	switch k {
	case "esc", "left", "backspace":
		m.name = ""
		m.ask()
	case "t":
		if !m.byKey && len(m.one.keys) == 0 {
			m.note = "no keys share " + clean(m.name) + " now"
			return
		}
		m.byKey, m.row, m.from = !m.byKey, 0, 0
	case "r":
		if m.byKey || m.row >= len(m.one.state.Holders) {
			m.note = "only a permit that is held can be revoked"
			return
		}
		id := m.id()
		m.confirm(m.name, "revoke "+clean(id), func(ctx context.Context, o *sema.Operator) error { return o.Revoke(ctx, id) })
	}
}

// operate asks about a change of the semaphore under the cursor, if it is there.
func (m *model) operate(k string) {
	s, gone := m.cursor()
	name := s.Name
	switch {
	case name == "":
	case gone:
		m.note = clean(name) + " is gone: nobody uses it now"
	case k == "l":
		m.askLimit(name)
	case k == "u":
		m.confirm(name, "unset the limit of "+clean(name), func(ctx context.Context, o *sema.Operator) error { return o.Unset(ctx) })
	case s.Paused:
		m.confirm(name, "unpause "+clean(name), func(ctx context.Context, o *sema.Operator) error { return o.Unpause(ctx) })
	default:
		m.confirm(name, "pause "+clean(name), func(ctx context.Context, o *sema.Operator) error { return o.Pause(ctx) })
	}
}

// answer is a key while something is asked.
func (m *model) answer(k tea.KeyPressMsg) {
	p := &m.prompt
	switch key := k.String(); {
	case p.kind == sure:
		do := p.do
		m.prompt = prompt{}
		if key == "y" || key == "Y" {
			do("")
			return
		}
		m.note = "nothing was done"
	case key == "esc":
		if p.kind == filtering {
			m.query.Filter = ""
			m.top()
		}
		m.prompt = prompt{}
	case key == "enter":
		asked := *p
		m.prompt = prompt{}
		if asked.do != nil {
			asked.do(asked.word)
		}
	case key == "backspace":
		_, n := utf8.DecodeLastRuneInString(p.word)
		m.typed(p.word[:len(p.word)-n])
	case p.kind == number && (len(k.Text) != 1 || k.Text < "0" || k.Text > "9"):
	case k.Text != "" && len(p.word)+len(k.Text) <= engine.MaxName:
		m.typed(p.word + k.Text)
	}
}

// typed is what the word has become.
func (m *model) typed(word string) {
	m.prompt.word = word
	if m.prompt.kind == filtering {
		m.query.Filter = word
		m.top()
	}
}

// top goes to the beginning of another list.
func (m *model) top() {
	m.query.Skip, m.at = 0, 0
	m.ask()
}

// scroll goes n lines down from the line at, of total lines; the window of so many rows,
// of which the first is from, goes along.
func scroll(at, from, n, total, rows int) (to, first int) {
	to = max(0, min(at+n, total-1))
	return to, max(min(from, to), to-rows+1)
}

// move goes so many lines down.
func (m *model) move(n int) {
	if m.name != "" {
		m.row, m.from = scroll(m.row, m.from, n, len(m.ids()), m.rowsOfOne())
		return
	}
	was := m.query.Skip
	m.at, m.query.Skip = scroll(was+m.at, was, n, m.list.total, m.rows())
	m.at -= m.query.Skip
	if m.query.Skip != was {
		m.list.list = nil // it is of other lines
		m.ask()
	}
}
