package view_test

import (
	"encoding/json"
	"fmt"
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
		{"nothing", engine.State{}, `{"name":"x","limit":0,"pinned":false,"paused":false,"used":0,"free":0,"holding":0,"waiting":0,"oldest_seconds":0,"holders":[],"waiters":[],"per_key":0,"keys":[]}`},
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
			`{"permit":"a-1-2","key":"","weight":2,"slot":null,"token":null,"age_seconds":null,"lease_left_seconds":0,"revoked":false,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"permit":"b-2-1","key":"","weight":1,"slot":0,"token":7,"age_seconds":1.5,"lease_left_seconds":1,"revoked":true,"host":"h","pid":1,"label":"l","version":"0.2.0","caller":"job-17"}],"waiters":[` +
			`{"position":1,"permit":"a-2-1","key":"","weight":1,"waiting_seconds":1,"behind":3,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"position":2,"permit":"a-3-1","key":"","weight":1,"waiting_seconds":2,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""}],"per_key":0,"keys":[]}`},
		{"adapting", engine.State{Limit: 37, Auto: &engine.Auto{Min: 2, Max: 200, Bad: 31}}, `{"name":"x","limit":37,"pinned":false,"paused":false,"used":0,"free":37,"holding":0,"waiting":0,"oldest_seconds":0,` +
			`"holders":[],"waiters":[],"per_key":0,"keys":[],"adapting":{"min":2,"max":200,"bad":0.031}}`},
		{"keys", engine.State{
			Limit: 5, Used: 2, PerKey: 2, Holders: []engine.Holder{{ID: "a-1-2", Weight: 2, Slot: -1, Key: "acme"}},
			Waiters: []engine.Waiter{{ID: "a-2-4", Weight: 4, Key: "beta"}, {ID: "a-3-1", Weight: 1, Waiting: time.Second, Behind: 1, Key: "acme"}, {ID: "a-4-1", Weight: 1, Key: "acme"}},
			Keys:    []engine.KeyState{{Key: "beta", Waiting: 1, Share: 300, Ruled: true}, {Key: "acme", Held: 2, Waiting: 2, Cap: 2, Share: 100, Full: true}},
		}, `{"name":"x","limit":5,"pinned":false,"paused":false,"used":2,"free":3,"holding":1,"waiting":4,"oldest_seconds":1,"holders":[` +
			`{"permit":"a-1-2","key":"acme","weight":2,"slot":null,"token":null,"age_seconds":null,"lease_left_seconds":0,"revoked":false,"host":"","pid":0,"label":"","version":"","caller":""}],"waiters":[` +
			`{"position":1,"permit":"a-2-4","key":"beta","weight":4,"waiting_seconds":0,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"position":1,"permit":"a-3-1","key":"acme","weight":1,"waiting_seconds":1,"behind":1,"host":"","pid":0,"label":"","version":"","caller":""},` +
			`{"position":2,"permit":"a-4-1","key":"acme","weight":1,"waiting_seconds":0,"behind":0,"host":"","pid":0,"label":"","version":"","caller":""}],"per_key":2,"keys":[` +
			`{"key":"beta","held":0,"waiting":1,"oldest_seconds":0,"cap":0,"share":300,"ruled":true,"full":false,"before":0,"why":"beta is next; wants 4, 3 of 5 free"},` +
			`{"key":"acme","held":2,"waiting":3,"oldest_seconds":1,"cap":2,"share":100,"ruled":false,"full":true,"before":0,"why":"acme holds 2 of its 2"}]}`},
	} {
		text, err := json.Marshal(view.Of("x", c.st))
		if err != nil || string(text) != c.want {
			t.Errorf("%s: %v\n%s, want\n%s", c.name, err, text, c.want)
		}
	}
}

// crowd is a semaphore with so many keys, each of which holds one, and has two that wait.
func crowd(keys int) engine.State {
	st := engine.State{Limit: keys, Used: keys, PerKey: 2}
	for i := range keys {
		key := fmt.Sprintf("tenant-%05d", i)
		st.Holders = append(st.Holders, engine.Holder{ID: fmt.Sprintf("a-%d-1", i+1), Key: key, Weight: 1})
		st.Keys = append(st.Keys, engine.KeyState{Key: key, Held: 1, Waiting: 2, Cap: 2, Share: 100, Before: i})
		for range 2 {
			st.Waiters = append(st.Waiters, engine.Waiter{ID: fmt.Sprintf("b-%d-1", len(st.Waiters)+1), Key: key, Weight: 1, Waiting: time.Duration(i)})
		}
	}
	return st
}

// What a page of keys, made once a second, takes.
func BenchmarkKeys(b *testing.B) {
	for _, keys := range []int{100, 10_000} {
		st := crowd(keys)
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				view.MostWaiting(view.KeysOf(st))
			}
		})
	}
}
