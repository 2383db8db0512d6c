package view_test

import (
	"encoding/json"
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
		{"nothing", engine.State{}, `{"name":"x","limit":0,"pinned":false,"paused":false,"used":0,"free":0,"holding":0,"waiting":0,"oldest_seconds":0,"holders":[],"waiters":[]}`},
		{"all", engine.State{
			Limit: 2, Pinned: true, Paused: true, Used: 3, // the limit was lowered
			Holders: []engine.Holder{
				{ID: "b-2-1", Weight: 1, Slot: 0, Token: 7, Age: 1500 * time.Millisecond, Left: time.Second, Revoked: true, Client: engine.Client{Host: "h", PID: 1, Label: "l", Caller: "job-17"}},
				{ID: "a-1-2", Weight: 2, Slot: -1}, // of an engine that did not record the rest
			},
			Waiters: []engine.Waiter{
				{ID: "a-2-1", Weight: 1, Waiting: time.Second, Behind: 3},
				{ID: "a-3-1", Weight: 1, Waiting: 2 * time.Second},
			},
		}, `{"name":"x","limit":2,"pinned":true,"paused":true,"used":3,"free":0,"holding":2,"waiting":5,"oldest_seconds":2,"holders":[` +
			`{"permit":"a-1-2","weight":2,"slot":null,"token":null,"age_seconds":null,"lease_left_seconds":0,"revoked":false,"host":"","pid":0,"label":"","caller":""},` +
			`{"permit":"b-2-1","weight":1,"slot":0,"token":7,"age_seconds":1.5,"lease_left_seconds":1,"revoked":true,"host":"h","pid":1,"label":"l","caller":"job-17"}],"waiters":[` +
			`{"position":1,"permit":"a-2-1","weight":1,"waiting_seconds":1,"behind":3,"host":"","pid":0,"label":"","caller":""},` +
			`{"position":2,"permit":"a-3-1","weight":1,"waiting_seconds":2,"behind":0,"host":"","pid":0,"label":"","caller":""}]}`},
	} {
		text, err := json.Marshal(view.Of("x", c.st))
		if err != nil || string(text) != c.want {
			t.Errorf("%s: %v\n%s, want\n%s", c.name, err, text, c.want)
		}
	}
}
