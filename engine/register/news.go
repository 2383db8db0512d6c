package register

import (
	"bytes"
	"encoding/base64"
	"strings"

	"sema/engine"
	"sema/internal/wire"
)

// processOf is the first part of a client's name.
func processOf(client string) string {
	process, _, _ := strings.Cut(client, ".")
	return process
}

// Those who listen and those who poll have names of their own, so that a step sees by a
// client's name how it is to be told.
const (
	listens = "p"
	polls   = "q"
)

// messages makes texts for processes other than own of what a step tells their clients.
// Processes that poll are told nothing.
func messages(news map[string]*engine.Notification, own string) []Message {
	texts := map[string][]byte{}
	var all []Message
	for client, n := range news {
		process := processOf(client)
		if process == own || !strings.HasPrefix(process, listens) || n.Empty() {
			continue
		}
		more := wire.AppendNews(nil, &wire.News{Client: client, Notification: *n})
		if base64.StdEncoding.EncodedLen(len(more)) > MaxText {
			more = wire.AppendNews(nil, &wire.News{Client: client, Notification: engine.Notification{Ask: true, Renew: true, Recall: n.Recall}})
		}
		b := texts[process]
		if base64.StdEncoding.EncodedLen(len(b)+len(more)) > MaxText {
			all = append(all, Message{process, base64.StdEncoding.EncodeToString(b)})
			b = nil
		}
		texts[process] = append(b, more...)
	}
	for process, b := range texts {
		all = append(all, Message{process, base64.StdEncoding.EncodeToString(b)})
	}
	return all
}

// heard passes on what another process tells.
func (e *Engine) heard(text string) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return // somebody else's
	}
	for r := bytes.NewReader(b); r.Len() > 0; {
		n, err := wire.ReadNews(r)
		if err != nil {
			return
		}
		if s := e.session(n.Client); s != nil {
			s.tell(n.Notification)
		}
	}
}
