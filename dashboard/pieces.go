package dashboard

import (
	"bytes"
	"encoding/json"
	"hash/maphash"
	"strings"
)

// pieces are the parts of a page that change, in order. Parts replace what is in
// an element; rows are elements of a list.
type pieces []piece

type piece struct {
	list string // of rows; empty: it is a part
	key  string
	html string
	sum  uint64
}

var seed = maphash.MakeSeed()

func (p *pieces) part(key, page string, v any) { p.row("", key, page, v) }

func (p *pieces) row(list, key, page string, v any) {
	var b bytes.Buffer
	if err := pages().ExecuteTemplate(&b, page, v); err != nil {
		b.Reset() // the page itself cannot be made either, and says so
	}
	*p = append(*p, piece{list, key, b.String(), maphash.Bytes(seed, b.Bytes())})
}

// with names the lists of a page, which may be empty.
func (p pieces) with(lists ...string) pieces {
	for _, list := range lists {
		p = append(p, piece{list: list})
	}
	return p
}

// sent is what a browser has.
type sent map[[2]string]uint64

// message is what a browser still needs to show p; empty if nothing.
//
//	{"parts": {KEY: HTML}, "lists": {LIST: {"order": [KEY, …], "rows": {KEY: HTML}}}}
func (s *sent) message(p pieces) []byte {
	type list struct {
		Order []string          `json:"order"`
		Rows  map[string]string `json:"rows"`
	}
	var m struct {
		Parts map[string]string `json:"parts"`
		Lists map[string]*list  `json:"lists"`
	}
	m.Parts, m.Lists = map[string]string{}, map[string]*list{}
	now, changed := sent{}, false
	for _, x := range p {
		at := [2]string{x.list, x.key}
		if x.list != "" && m.Lists[x.list] == nil {
			m.Lists[x.list] = &list{Order: []string{}, Rows: map[string]string{}}
		}
		if x.key == "" {
			continue
		}
		now[at] = x.sum
		differs := (*s)[at] != x.sum
		changed = changed || differs
		switch {
		case x.list != "":
			m.Lists[x.list].Order = append(m.Lists[x.list].Order, x.key)
			if differs {
				m.Lists[x.list].Rows[x.key] = x.html
			}
		case differs:
			m.Parts[x.key] = x.html
		}
	}
	for name, list := range m.Lists {
		at := [2]string{name, ""}
		now[at] = maphash.String(seed, strings.Join(list.Order, "\x00"))
		changed = changed || (*s)[at] != now[at]
	}
	if len(m.Lists) == 0 { // a notice alone: all else stays as it is
		for at, sum := range *s {
			if _, ok := now[at]; !ok {
				now[at] = sum
			}
		}
	}
	*s = now
	if !changed {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil // strings always can
	}
	return append(append([]byte("data: "), text...), "\n\n"...)
}
