package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"sema"
	"sema/engine"
	"sema/watch"
)

// Orders are the orders of the list, as watch.Query.Order has them, in the order of their key.
var Orders = []string{"name", "use", "waiting", "oldest"}

// model is what is shown. It is changed by one goroutine.
type model struct {
	feed          *feed
	where         string
	width, height int

	asked int         // the number of the last subject
	query watch.Query // of the list; N and Skip follow from the window
	list  page        // last found
	at    int         // the selected line of the page

	name string // of the semaphore that is shown alone; "": the list
	one  page
	row  int // selected: holders, then waiters; by key: the key
	from int // the first row that is shown

	byKey bool // the keys of one are shown, in place of holders and waiters

	note   string // what happened last
	prompt prompt
}

// prompt asks for a word, or for a yes.
type prompt struct {
	kind prompting
	text string // the question, or what is asked for
	word string // as typed so far
	do   func(word string)
}

type prompting int

const (
	nothing   prompting = iota
	filtering           // each key counts at once
	number              // a number, then a yes
	sure                // y, or anything else
)

func newModel(f *feed, o Options) *model {
	m := &model{feed: f, where: clean(o.Where), width: 80, height: 24}
	m.query.Order, m.query.Filter = cmp.Or(o.Order, Orders[0]), o.Filter
	return m
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { m.ask(); return nil }

// ask tells the feed what to look for.
func (m *model) ask() {
	m.query.N = m.rows()
	m.asked++
	m.feed.want(subject{number: m.asked, name: m.name, query: m.query})
}

// rows is how many lines there are for the list, or for holders and waiters.
func (m *model) rows() int { return max(1, m.height-4) }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 20), max(msg.Height, 5)
		m.ask()
	case page:
		m.found(msg)
	case done:
		m.note = msg.what + ": done"
		if msg.err != nil {
			m.note = msg.what + ": " + clean(msg.err.Error())
		}
		m.ask()
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// found takes in what a look found, unless something else is wanted by now.
func (m *model) found(p page) {
	if p.subject.number != m.asked {
		return
	}
	if m.name != "" {
		keep := m.id()
		if p.err != nil {
			p.state, p.keys = m.one.state, m.one.keys // what was known, with the error
		}
		m.one = p
		m.byKey = m.byKey && len(p.keys) > 0
		if i := slices.Index(m.ids(), keep); i >= 0 { // wherever it went
			m.row = i
		}
		m.move(0)
		return
	}
	was, _ := m.cursor()
	if p.err != nil {
		p.list, p.total = m.list.list, m.list.total
	}
	m.list = p
	if i := slices.IndexFunc(p.list, func(s watch.Summary) bool { return s.Name == was.Name }); i >= 0 {
		m.at = i
	}
	m.at = max(0, min(m.at, len(p.list)-1))
	if len(p.list) == 0 && p.total > 0 { // there are fewer than there were
		m.query.Skip = 0
		m.ask()
	}
}

// cursor is the semaphore that an operator's word is about, and whether it was not there
// any more when it was last looked at. Its name is "" if there is none.
func (m *model) cursor() (s watch.Summary, gone bool) {
	if st := m.one.state; m.name != "" {
		return watch.Summary{Name: m.name, Paused: st.Paused}, st.Limit == 0 && m.one.subject.number != 0 && m.one.err == nil
	}
	if m.at < len(m.list.list) {
		s = m.list.list[m.at]
	}
	return s, s.Limit == 0 && s.Err == nil
}

// ids are those of the rows of one semaphore: permits of holders, then of waiters; or its
// keys.
func (m *model) ids() (list []string) {
	if m.byKey {
		for _, k := range m.one.keys {
			list = append(list, string(k.Key))
		}
		return list
	}
	for _, h := range m.one.state.Holders {
		list = append(list, h.ID)
	}
	for _, w := range m.one.state.Waiters {
		list = append(list, w.ID)
	}
	return list
}

// id is that of the row under the cursor, or "".
func (m *model) id() string {
	if ids := m.ids(); m.row < len(ids) {
		return ids[m.row]
	}
	return ""
}

// confirm asks before something is done to a semaphore.
func (m *model) confirm(name, what string, do func(context.Context, *sema.Operator) error) {
	m.prompt = prompt{kind: sure, text: what + "? (y/n)", do: func(string) {
		m.note = what + " …"
		m.feed.act(name, what, do)
	}}
}

// askLimit asks for a limit, and then whether to set it.
func (m *model) askLimit(name string) {
	m.prompt = prompt{kind: number, text: "limit of " + clean(name) + ": ", do: func(word string) {
		n, err := strconv.Atoi(word)
		if err == nil {
			err = engine.ValidateLimit(n)
		}
		if err != nil {
			m.note = fmt.Sprintf("limit %q: want 1 … %d", word, engine.MaxLimit)
			return
		}
		m.confirm(name, fmt.Sprintf("set the limit of %s to %d", clean(name), n), func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, sema.Rule{Limit: n}) })
	}}
}
