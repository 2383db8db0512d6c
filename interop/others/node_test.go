//go:build interop

package others

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/classic"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// node is a Node.js that uses redis-semaphore as it is told.
type node struct {
	t       *testing.T
	words   *json.Encoder
	lines   *bufio.Reader
	answers map[string]bool // that nobody has waited for yet, by id
}

type order struct {
	Do      string `json:"do"`
	ID      string `json:"id"`
	Key     string `json:"key,omitempty"`
	Limit   int    `json:"limit,omitempty"`
	Weight  int    `json:"weight,omitempty"`
	Timeout int    `json:"timeout,omitempty"`
	Wait    int    `json:"wait,omitempty"`
}

func startNode(t *testing.T) (*node, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	cmd := exec.Command("node", "driver.js", server.URL())
	cmd.Dir, cmd.Stderr = "node", os.Stderr
	in, err := cmd.StdinPipe()
	expect.OK(t, err)
	out, err := cmd.StdoutPipe()
	expect.OK(t, err)
	expect.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return &node{t, json.NewEncoder(in), bufio.NewReader(out), map[string]bool{}}, server.Client()
}

func (n *node) send(o order) {
	n.t.Helper()
	expect.OK(n.t, n.words.Encode(o))
}

// answer waits for the answer about an id.
func (n *node) answer(id string) bool {
	n.t.Helper()
	for {
		if ok, there := n.answers[id]; there {
			delete(n.answers, id)
			return ok
		}
		line, err := n.lines.ReadBytes('\n')
		expect.OK(n.t, err)
		var a struct {
			ID, Error string
			OK        bool
		}
		if err := json.Unmarshal(line, &a); err != nil || a.Error != "" {
			n.t.Fatalf("%s: %v", line, err)
		}
		n.answers[a.ID] = a.OK
	}
}

func (n *node) asks(o order) bool {
	n.t.Helper()
	n.send(o)
	return n.answer(o.ID)
}

// A caller with a shorter lockTimeout ends the permits of all others: three hold
// a semaphore of two.
func TestNodeShortTimeoutEvictsOthers(t *testing.T) {
	n, rdb := startNode(t)
	for _, id := range []string{"a", "b"} {
		if !n.asks(order{Do: "acquire", ID: id, Key: "s", Limit: 2, Timeout: 60_000}) {
			t.Fatalf("%s got no permit", id)
		}
	}
	if n.asks(order{Do: "acquire", ID: "c", Key: "s", Limit: 2, Timeout: 60_000}) {
		t.Fatal("a third holder of two with the same timeout")
	}
	// The permits of a and b have a minute to live. To d only their age counts.
	if !n.asks(order{Do: "acquire", ID: "d", Key: "s", Limit: 2, Timeout: 50, Wait: 10_000}) {
		t.Fatal("a short timeout takes no permit from others any more: the page is out of date")
	}
	if left, err := rdb.ZCard(t.Context(), "semaphore:s").Result(); err != nil || left > 2 {
		t.Errorf("%d holders in Redis, want 2 at most, though three believe it; %v", left, err)
	}
}

// A heavy request starves behind light ones: nobody reserves anything for it.
func TestNodeHeavyRequestStarves(t *testing.T) {
	n, _ := startNode(t)
	light := func(id string) order {
		return order{Do: "acquire", ID: id, Key: "s", Limit: 2, Timeout: 60_000}
	}
	n.asks(light("a"))
	n.send(order{Do: "acquire", ID: "heavy", Key: "s", Limit: 2, Weight: 2, Timeout: 60_000, Wait: 1000})
	// Meanwhile light ones that came later are served, one after the other.
	served := 0
	for held, next := "a", "b"; ; held, next = next, held {
		if ok, done := n.answers["heavy"]; done {
			if ok {
				t.Error("the heavy request was served: the page is out of date")
			}
			break
		}
		if !n.asks(light(next)) {
			t.Fatal("a light request is held back for the heavy one: the page is out of date")
		}
		if !n.asks(order{Do: "release", ID: held}) {
			t.Fatal("not released")
		}
		served++
	}
	if served == 0 {
		t.Error("no light request was served meanwhile")
	}
}

// Package classic shares permits with it: the book's semaphore, in milliseconds.
func TestNodeSharesPermitsWithClassic(t *testing.T) {
	n, rdb := startNode(t)
	ours, err := classic.NewScripted(rdb, "semaphore:s", 2, classic.Options{Lease: time.Minute, ScoreUnit: time.Millisecond})
	expect.OK(t, err)
	theirs := order{Do: "acquire", ID: "a", Key: "s", Limit: 2, Timeout: 60_000}
	if !n.asks(theirs) {
		t.Fatal("theirs: no permit")
	}
	id, ok, err := ours.Acquire(t.Context())
	if err != nil || !ok {
		t.Fatalf("ours: %v, %v", ok, err)
	}
	theirs.ID = "b"
	if n.asks(theirs) {
		t.Error("theirs: a third permit of two")
	}
	if _, ok, err := ours.Acquire(t.Context()); err != nil || ok {
		t.Errorf("ours: a third permit of two: %v, %v", ok, err)
	}
	if ok, err := ours.Release(t.Context(), id); err != nil || !ok {
		t.Errorf("ours: %v, %v", ok, err)
	}
	if !n.asks(theirs) {
		t.Error("theirs: no permit after ours was released")
	}
}
