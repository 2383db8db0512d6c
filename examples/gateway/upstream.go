package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const tokens = 12 // of an answer

// upstream stands in for a service of language models: it streams its answers,
// and counts how many it gives at once.
type upstream struct {
	models map[string]*model
}

type model struct {
	mu        sync.Mutex
	now, peak int
	capacity  int
	filled    chan struct{} // closed when as many as may be were there at once
}

func newUpstream(caps map[string]int) *upstream {
	u := &upstream{models: map[string]*model{}}
	for name, n := range caps {
		u.models[name] = &model{capacity: n, filled: make(chan struct{})}
	}
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model   string `json:"model"`
		Endless bool   `json:"endless"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || u.models[asked.Model] == nil {
		http.Error(w, "no such model", http.StatusNotFound)
		return
	}
	m := u.models[asked.Model]
	m.enter()
	defer m.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	for i := 0; i < tokens || asked.Endless; i++ {
		fmt.Fprintf(w, "data: token %d\n\n", i)
		if rc.Flush() != nil {
			return
		}
		if i > 0 && !asked.Endless {
			continue
		}
		select { // a slow answer: as long as it takes for others to come, if they may
		case <-m.filled:
			if asked.Endless {
				<-r.Context().Done()
				return
			}
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

func (m *model) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now++
	if m.now > m.peak {
		if m.peak = m.now; m.peak == m.capacity {
			close(m.filled)
		}
	}
}

func (m *model) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now--
}

func (m *model) most() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peak
}
