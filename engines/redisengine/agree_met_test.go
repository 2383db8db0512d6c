package redisengine

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// The bounds of lua/layout.lua.
const (
	mostTurns = 32
	mostEnds  = 128
	mostTold  = 128
)

// describer returns the description of client n.
func describer(n int) engine.Client {
	return engine.Client{Host: "host" + strconv.Itoa(n), PID: n, Label: strings.Repeat("l", n%3)}
}

func text(c engine.Client) string {
	b, _ := json.Marshal(c)
	return string(b)
}

func (j *judge) place(client string) int { return slices.Index(j.clients, client) }

// notice counts the rare cases that a call is about to meet.
func (j *judge) notice(client string, c protocol.Call) {
	for _, r := range c.Requests {
		if (r.Kind == protocol.Ask || r.Kind == protocol.Renew) && r.Who == nil && r.ID.Client != client && r.ID.Client != api {
			j.others[r.ID] = true
		}
	}
	over := 0
	j.ledger.Holders(func(id engine.ID, _ string, _ bool) {
		if _, _, holds := j.ledger.Permit(j.now, id); !holds {
			over++
		}
	})
	if over > mostEnds {
		j.ends.Add(1)
	}
}

// noticed counts the rare cases that a call has met, and notes what it told the
// client.
func (j *judge) noticed(client string, c protocol.Call, late bool, reply protocol.Reply, told map[string]protocol.Notification) {
	if late {
		return
	}
	if f := j.fences[client]; c.Number < f.number {
		j.bench.fences.Add(1)
	}
	if c.Fence {
		j.fences[client] = fencing{c.Number, j.now + 1_000_000_000}
	}
	grants := len(reply.Notification.Grants)
	for _, n := range told {
		grants += len(n.Grants)
	}
	if grants == mostTurns {
		j.turns.Add(1)
	}
	if recalled(told) == mostTold {
		j.bench.told.Add(1)
	}
	j.keeps[client] = keeping{reply.Keep, j.now + c.Keep.Microseconds()}
}

// recalled counts the notified keepers.
func recalled(told map[string]protocol.Notification) (n int) {
	for _, news := range told {
		if news.Recall {
			n++
		}
	}
	return n
}

// someKeepers checks that the script and the ledger notify equally many keepers,
// and removes those notifications. With more keepers than a step notifies, the
// two may choose different ones.
func someKeepers(t failer, now int64, got, want map[string]protocol.Notification, keeps map[string]keeping) {
	if recalled(got) != recalled(want) {
		t.Fatalf("at %d %d keepers are told, want %d", now, recalled(got), recalled(want))
	}
	for client, n := range got {
		k := keeps[client]
		if n.Recall && (!k.may || k.end <= now) {
			t.Fatalf("at %d %s is told %+v, and was told before: %+v", now, client, n, k)
		}
	}
	for _, told := range []map[string]protocol.Notification{got, want} {
		for client, n := range told {
			if n.Recall = false; n.Empty() {
				delete(told, client)
			} else {
				told[client] = n
			}
		}
	}
}

func sameReply(a, b protocol.Reply) bool {
	return a.Limit == b.Limit && a.Caps == b.Caps && a.Room == b.Room && a.Recheck == b.Recheck && a.Unreachable == b.Unreachable && a.Keep == b.Keep && a.Recalled == b.Recalled &&
		slices.Equal(a.Answers, b.Answers) && sameNews(a.Notification, b.Notification)
}

// sameNews compares notifications, without the order of grants.
func sameNews(a, b protocol.Notification) bool {
	byToken := func(gs []protocol.Grant) []protocol.Grant {
		return slices.SortedFunc(slices.Values(gs), func(a, b protocol.Grant) int { return cmp.Compare(a.Token, b.Token) })
	}
	return a.Ask == b.Ask && a.Renew == b.Renew && a.Recheck == b.Recheck && a.Recall == b.Recall && slices.Equal(byToken(a.Grants), byToken(b.Grants))
}
