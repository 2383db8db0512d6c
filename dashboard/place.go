package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"sema/engine"
)

// place is where callers are: a host, or the token of callers of a server's API, whose address may be a proxy's.
type place struct{ Host, Token string }

func (p place) String() string {
	if p.Token != "" {
		return "token " + p.Token
	}
	return cmp.Or(p.Host, "unknown")
}

// address leads to the place's page; empty: it is unknown.
func (p place) address() string {
	switch {
	case p.Token != "":
		return "host?" + url.Values{"token": {p.Token}}.Encode()
	case p.Host != "":
		return "host?" + url.Values{"host": {p.Host}}.Encode()
	}
	return ""
}

// placeOf returns where a caller is. A server with tokens puts the token's name in front of the label.
func (h *Handler) placeOf(c engine.Client) place {
	if token, _, _ := strings.Cut(c.Label, " "); h.options.Login != nil && c.Caller != "" && token != "" {
		return place{Token: token}
	}
	return place{Host: c.Host}
}

// caller is one in words.
type caller struct {
	Name, Where, Place string // Place is an address
	From               string // what else is known of where it is
}

func (h *Handler) caller(c engine.Client, permit string) caller {
	p := h.placeOf(c)
	x := caller{Name: c.Label, Where: p.String(), Place: p.address()}
	switch {
	case p.Token != "":
		x.Name, x.From = c.Caller+strings.TrimPrefix(c.Label, p.Token), c.Host
	case c.Caller != "":
		x.Name = strings.TrimSpace(c.Caller + " " + c.Label)
	case c.Label == "" && c.PID != 0:
		x.Name = fmt.Sprintf("process %d", c.PID)
	}
	x.Name = cmp.Or(x.Name, permit)
	return x
}

// long is a word or a name in a key that has no room in a row.
var long = regexp.MustCompile(`[^\s/]{21,}`)

// brief leaves out the middle of long words. The ends tell apart: UUIDs in the order of time begin alike.
func brief(text string) string {
	return long.ReplaceAllStringFunc(text, func(word string) string {
		r := []rune(word)
		return string(r[:8]) + "…" + string(r[len(r)-8:])
	})
}

// A caller in a sentence.
func (h *Handler) who(c engine.Client, permit string) (name, where string) {
	x := h.caller(c, permit)
	if strings.HasPrefix(x.Where, "token ") {
		return brief(x.Name), "with " + x.Where
	}
	return brief(x.Name), "on " + x.Where
}
