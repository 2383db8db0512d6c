package view_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/view"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name string
		st   engine.State
		want string
	}{
		{"nothing", engine.State{}, `{"name":"x","limit":0,"pinned":false,"paused":false,"used":0,"free":0,"holding":0,"waiting":0,"oldest_seconds":0,"holders":[],"waiters":[],"caps":[],"pools":[],"keys":[]}`},
		{"all", engine.State{
			Limit: 2, Pinned: true, Paused: true, Used: 3, // the limit was lowered
			Holders: []engine.Holder{
				{ID: "b-2-1", Weight: 1, Slot: 0, Token: 7, Age: 1500 * time.Millisecond, Left: time.Second, Revoked: true, Client: engine.Client{Host: "h", PID: 1, Label: "l", Version: "0.2.0", Caller: "job-17"}},
				{ID: "a-1-2", Weight: 2, Slot: -1}, // of an engine that did not record the rest
			},
			Waiters: []engine.Waiter{
				{ID: "a-2-1", Weight: 1, Waiting: time.Second, Behind: 3},
				{ID: "a-3-1", Weight: 1, Waiting: 2 * time.Second},
			},
		}, `{"name":"x","limit":2,"pinned":true,"paused":true,"used":3,"free":0,"holding":2,"waiting":5,"oldest_seconds":2,"holders":[` +
			`{"permit":"a-1-2","key":"","takes":{},"weight":2,"slot":null,"token":null,"age_seconds":null,"lease_left_seconds":0,"revoked":false,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"permit":"b-2-1","key":"","takes":{},"weight":1,"slot":0,"token":7,"age_seconds":1.5,"lease_left_seconds":1,"revoked":true,"host":"h","pid":1,"label":"l","version":"0.2.0","caller":"job-17"}],"waiters":[` +
			`{"position":1,"permit":"a-2-1","key":"","takes":{},"weight":1,"waiting_seconds":1,"behind":3,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"position":2,"permit":"a-3-1","key":"","takes":{},"weight":1,"waiting_seconds":2,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""}],"caps":[],"pools":[],"keys":[]}`},
		{"adapting", engine.State{Limit: 37, Auto: &engine.Auto{Min: 2, Max: 200, Bad: 31}}, `{"name":"x","limit":37,"pinned":false,"paused":false,"used":0,"free":37,"holding":0,"waiting":0,"oldest_seconds":0,` +
			`"holders":[],"waiters":[],"caps":[],"pools":[],"keys":[],"adapting":{"min":2,"max":200,"bad":0.031}}`},
		{"keys", engine.State{
			Limit: 5, Used: 2, Caps: engine.Caps{2}, Holders: []engine.Holder{{ID: "a-1-2", Weight: 2, Slot: -1, Key: "acme"}},
			Waiters: []engine.Waiter{{ID: "a-2-4", Weight: 4, Key: "beta"}, {ID: "a-3-1", Weight: 1, Waiting: time.Second, Behind: 1, Key: "acme"}, {ID: "a-4-1", Weight: 1, Key: "acme"}},
			Keys:    []engine.KeyState{{Key: "beta", Waiting: 1, Cap: 4, Share: 300, Ruled: true, InTurn: true}, {Key: "acme", Held: 2, Waiting: 2, Cap: 2, Share: 100, Full: true}},
		}, `{"name":"x","limit":5,"pinned":false,"paused":false,"used":2,"free":3,"holding":1,"waiting":4,"oldest_seconds":1,"holders":[` +
			`{"permit":"a-1-2","key":"acme","takes":{},"weight":2,"slot":null,"token":null,"age_seconds":null,"lease_left_seconds":0,"revoked":false,"host":"","pid":0,"label":"","version":"","caller":""}],"waiters":[` +
			`{"position":1,"permit":"a-2-4","key":"beta","takes":{},"weight":4,"waiting_seconds":0,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"position":1,"permit":"a-3-1","key":"acme","takes":{},"weight":1,"waiting_seconds":1,"behind":1,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"position":2,"permit":"a-4-1","key":"acme","takes":{},"weight":1,"waiting_seconds":0,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""}],"caps":[2],"pools":[],"keys":[` +
			`{"key":"beta","held":0,"waiting":1,"oldest_seconds":0,"cap":4,"share":300,"ruled":true,"full":false,"before":0,"why":"2 of 5 held, 4 wanted"},` +
			`{"key":"acme","held":2,"waiting":3,"oldest_seconds":1,"cap":2,"share":100,"ruled":false,"full":true,"before":0,"why":"keys before acme: 1; acme holds 2 of its 2"}]}`},
		{"pools", engine.State{
			Limit: 5, Used: 1, Pools: []engine.PoolState{{Pool: "gpu", Limit: 2, Used: 2, Waiting: 1}, {Pool: "old", Used: 1}},
			Holders: []engine.Holder{{ID: "a-1-1", Weight: 1, Slot: -1, Takes: "gpu=2,old=1"}}, Waiters: []engine.Waiter{{ID: "a-2-1", Weight: 1, Takes: "gpu=1"}},
		}, `{"name":"x","limit":5,"pinned":false,"paused":false,"used":1,"free":4,"holding":1,"waiting":1,"oldest_seconds":0,"holders":[` +
			`{"permit":"a-1-1","key":"","takes":{"gpu":2,"old":1},"weight":1,"slot":null,"token":null,"age_seconds":null,"lease_left_seconds":0,"revoked":false,"host":"","pid":0,"label":"","version":"","caller":""}],"waiters":[` +
			`{"position":1,"permit":"a-2-1","key":"","takes":{"gpu":1},"weight":1,"waiting_seconds":0,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""}],"caps":[],` +
			`"pools":[{"pool":"gpu","limit":2,"used":2,"waiting":1},{"pool":"old","limit":0,"used":1,"waiting":0}],"keys":[]}`},
	} {
		text, err := json.Marshal(view.Of("x", c.st))
		if err != nil || string(text) != c.want {
			t.Errorf("%s: %v\n%s, want\n%s", c.name, err, text, c.want)
		}
	}
}

// Keys beside each other are sorted, each followed by those below it. What has only others below it has a row, too.
func TestTree(t *testing.T) {
	row := func(key string, waiting, held int) view.Key {
		return view.Key{Key: nested(key), Waiting: waiting, Held: held, Share: 100}
	}
	keys := []view.Key{
		row("acme/bob", 1, 3), row("", 2, 0), row("acme", 3, 5), row("acme/", 0, 0), row("acme/alice", 2, 1), row("beta", 3, 6),
		row("gamma/carol/gpt", 0, 1), row("acme/alice/gpt", 2, 1), row("delta", 0, 0), row("acme/alice/", 0, 0),
	}
	var got []string
	for _, k := range view.Tree(keys, engine.Caps{20, 4}) {
		got = append(got, fmt.Sprintf("%d %s", k.Cap, view.Title(k.Key)))
	}
	want := []string{
		"0 beta", "0 acme", "0 acme/alice", "0 acme/alice/gpt", "0 acme/alice itself", "0 acme/bob", "0 acme itself",
		"0 (none)", "0 delta", "20 gamma", "4 gamma/carol", "0 gamma/carol/gpt",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(view.Tree(nil, engine.Caps{})) != 0 {
		t.Error("a tree of nothing")
	}
}

func TestCapsAreRead(t *testing.T) {
	for text, want := range map[string]engine.Caps{
		"20": {20}, "20,4": {20, 4}, "-,4": {0, 4}, "0,4,2": {0, 4, 2}, " 20 , - , 2 ": {20, 0, 2}, "-": {}, "0": {}, "0,0,0": {}, "2147483647": {2147483647},
	} {
		got, err := view.ParseCaps(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if again, err := view.ParseCaps(view.CapsText(got)); err != nil || again != got {
			t.Errorf("%q is printed as %q: %v, %v", text, view.CapsText(got), again, err)
		}
	}
	for _, text := range []string{"", ",", "20,", "1,2,3,4", "-1", "x", "1.5", "--", "2147483648", "20;4", "no caps"} {
		got, err := view.ParseCaps(text)
		if want, ok := errors.AsType[*engine.ArgumentError](err); !ok || want.What != "caps" || got != (engine.Caps{}) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// A text finds the permits of a key, and of those below it.
func TestFoundByKey(t *testing.T) {
	st := engine.State{
		Limit: 9, Holders: []engine.Holder{{ID: "a-1-1", Key: "acme"}, {ID: "a-2-1", Key: nested("acme/alice")}, {ID: "a-3-1"}},
		Waiters: []engine.Waiter{{ID: "a-4-1", Key: nested("acme/alice/gpt")}, {ID: "a-5-1", Key: "a/b"}, {ID: "a-6-1", Key: "acmeco"}},
	}
	for text, want := range map[string]string{
		"acme": "[a-1-1 a-2-1 a-4-1]", "acme/alice": "[a-2-1 a-4-1]", "acme/alice/gpt": "[a-4-1]", "a%2Fb": "[a-5-1]", "a/b": "[]", "acm": "[]", "acme/": "[]", "%": "[]",
	} {
		found := view.NewFound()
		found.Add(view.Of("x", st), text)
		ids := []string{}
		for _, h := range found.Holders {
			ids = append(ids, h.Permit)
		}
		for _, w := range found.Waiters {
			ids = append(ids, w.Permit)
		}
		if fmt.Sprint(ids) != want {
			t.Errorf("%q: %v, want %s", text, ids, want)
		}
	}
}
