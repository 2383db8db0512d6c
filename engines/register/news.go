package register

import (
	"bytes"
	"encoding/base64"
	"strings"

	"sema/internal/protocol"
	"sema/internal/wire"
)

// processOf is the first part of a client's name.
func processOf(client string) string {
	process, _, _ := strings.Cut(client, ".")
	return process
}

// The first letter of a client's name says whether its process can listen or only polls,
// so a step knows which clients it can send messages to.
const (
	listenPrefix = "p"
	pollPrefix   = "q"
)

// messages encodes a step's notifications as one or more messages for each listening
// process except own.
func messages(news map[string]*protocol.Notification, own string) []Message {
	texts := map[string][]byte{}
	var all []Message
	for client, n := range news {
		process := processOf(client)
		if process == own || !strings.HasPrefix(process, listenPrefix) || n.Empty() {
			continue
		}
		more := wire.AppendNews(nil, &wire.News{Client: client, Notification: *n})
		if base64.StdEncoding.EncodedLen(len(more)) > MaxText {
			more = wire.AppendNews(nil, &wire.News{Client: client, Notification: protocol.Notification{Ask: true, Renew: true, Recall: n.Recall}})
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

// receive passes the notifications in a message of another process to their sessions.
func (e *Engine) receive(text string) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return // not a message of this package
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
