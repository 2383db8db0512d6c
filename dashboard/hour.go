package dashboard

import (
	"fmt"
	"strings"
	"time"

	"sema/access"
	"sema/internal/history"
	"sema/internal/view"
)

// happened is how many events a page lists.
const happened = 20

// happening is something that happened, in words.
type happening struct {
	stamp
	Who, Text string
}

// happenings are the last that happened, the newest first.
func (h *Handler) happenings(name string) (list []happening) {
	for _, e := range h.history.Events(name, happened) {
		one := happening{stamp: stamp{e.Time}}
		switch {
		case e.Act != nil:
			one.Who, one.Text = e.Act.Who, actText(*e.Act)
		case e.Permit != "":
			one.Who, one.Text = h.caller(e.Client, e.Permit).Name, permitText(e)
			if e.Key != "" {
				one.Who += " for " + e.Key.String()
			}
		default:
			one.Text = changeText(e)
		}
		list = append(list, one)
	}
	return list
}

// permitText is what became of a caller.
func permitText(e history.Event) string {
	const gone = "has no permit any more, after "
	switch e.Kind {
	case "queued":
		return "waits"
	case "granted":
		if e.Waited >= time.Second {
			return "holds a permit after a wait of " + view.Brief(e.Waited)
		}
		return "holds a permit"
	case "revoked":
		return "is to stop: its permit is revoked"
	case "released":
		return gone + view.Brief(e.Held)
	case "ended":
		return gone + view.Brief(e.Held) + "; its lease may have ended"
	}
	return "left the queue after " + view.Brief(e.Waited) + ", no permit seen"
}

// changeText is what became of a semaphore.
func changeText(e history.Event) string {
	switch e.Kind {
	case "limit":
		return fmt.Sprintf("the limit is %d", e.Limit)
	case "removed":
		return "nobody uses it any more"
	}
	return "grants are " + e.Kind
}

// actText is what an operator did.
func actText(r access.Record) string {
	var values []string
	add := func(is bool, text string) {
		if is {
			values = append(values, text)
		}
	}
	add(r.Limit > 0, fmt.Sprintf("the limit to %d", r.Limit))
	add(r.Caps != nil, capsOf(r.Caps))
	add(r.Pools != "", "pools "+string(r.Pools))
	add(r.Cap > 0, capOf(r.Cap))
	add(r.Share > 0, fmt.Sprintf("a share of %d", r.Share))
	text := strings.Join(values, ", ")
	switch r.What {
	case "limit":
		text = "sets " + text
	case "set-key":
		text = "sets key " + r.Key.String() + " to " + text
	case "adapt":
		text = "adapts " + text
	case "unset-key":
		text = "unsets cap and share of key " + r.Key.String()
	case "revoke", "release":
		text = r.What + "s permit " + r.Permit
	case "unset-limit":
		text = "unsets the limit"
	default:
		text = r.What + "s it"
	}
	if r.Result != "" && r.Result != "done" {
		text += ": " + r.Result
	}
	return text
}
