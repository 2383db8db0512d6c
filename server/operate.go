package server

import (
	"context"
	"net/http"
	"sort"
	"strings"
	"sync"

	"sema/engine"
)

// semaphoreJSON is a semaphore in a list.
type semaphoreJSON struct {
	Name    string `json:"name"`
	Limit   int    `json:"limit"`
	Pinned  bool   `json:"pinned"`
	Paused  bool   `json:"paused"`
	Used    int    `json:"used"`
	Free    int    `json:"free"`
	Holders int    `json:"holders"`
	Waiters int    `json:"waiters"`
}

// stateJSON is a semaphore with its holders and waiters.
type stateJSON struct {
	semaphoreJSON
	HolderList []holderJSON `json:"holder_list"`
	WaiterList []waiterJSON `json:"waiter_list"`
}

type holderJSON struct {
	Permit  string  `json:"permit"`
	Weight  int     `json:"weight"`
	Slot    *int    `json:"slot"`
	Token   int64   `json:"token"`
	Age     float64 `json:"age_seconds"`
	Left    float64 `json:"lease_left_seconds"`
	Revoked bool    `json:"revoked"`
	Host    string  `json:"host"`
	PID     int     `json:"pid"`
	Label   string  `json:"label"`
}

type waiterJSON struct {
	Position int     `json:"position"`
	Permit   string  `json:"permit"`
	Weight   int     `json:"weight"`
	Waiting  float64 `json:"waiting_seconds"`
	Behind   int     `json:"behind"`
	Host     string  `json:"host"`
	PID      int     `json:"pid"`
	Label    string  `json:"label"`
}

func summary(name string, st engine.State) semaphoreJSON {
	return semaphoreJSON{
		Name: name, Limit: st.Limit, Pinned: st.Pinned, Paused: st.Paused, Used: st.Used, Free: max(0, st.Limit-st.Used),
		Holders: len(st.Holders), Waiters: len(st.Waiters),
	}
}

// show answers with a semaphore, its holders and its waiters; of either, at
// most as many as asked for.
func (s *Server) show(w http.ResponseWriter, r *http.Request, who *Who) error {
	name, err := s.nameOf(r, who)
	if err != nil {
		return err
	}
	most, err := number(r, "max", 1000, 100_000)
	if err != nil {
		return err
	}
	st, err := s.look(r.Context(), name, who)
	if err != nil {
		return err
	}
	if st.Limit == 0 {
		return absent(name)
	}
	sort.Slice(st.Holders, func(i, k int) bool { return st.Holders[i].Token < st.Holders[k].Token })
	j := stateJSON{semaphoreJSON: summary(name, st), HolderList: []holderJSON{}, WaiterList: []waiterJSON{}}
	for _, h := range st.Holders[:min(most, len(st.Holders))] {
		one := holderJSON{
			Permit: h.ID, Weight: h.Weight, Token: h.Token, Age: h.Age.Seconds(), Left: h.Left.Seconds(), Revoked: h.Revoked,
			Host: h.Client.Host, PID: h.Client.PID, Label: h.Client.Label,
		}
		if h.Slot >= 0 {
			one.Slot = &h.Slot
		}
		j.HolderList = append(j.HolderList, one)
	}
	for i, x := range st.Waiters[:min(most, len(st.Waiters))] {
		j.WaiterList = append(j.WaiterList, waiterJSON{
			Position: i + 1, Permit: x.ID, Weight: x.Weight, Waiting: x.Waiting.Seconds(), Behind: x.Behind,
			Host: x.Client.Host, PID: x.Client.PID, Label: x.Client.Label,
		})
	}
	return writeJSON(w, http.StatusOK, j)
}

func absent(name string) error {
	return problem(http.StatusNotFound, "no-semaphore", "there is no semaphore %q: nobody uses it now, and nobody set its limit", name)
}

// list answers with the semaphores that exist, sorted by name, a page at a time.
func (s *Server) list(w http.ResponseWriter, r *http.Request, who *Who) error {
	most, err := number(r, "max", 100, 1000)
	if err != nil {
		return err
	}
	names, err := s.names(r.Context(), who)
	if err != nil {
		return err
	}
	prefix, after := r.URL.Query().Get("prefix"), r.URL.Query().Get("after")
	var page []string
	next := ""
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(page) == most {
			next = page[most-1]
			break
		}
		page = append(page, name)
	}
	list, err := s.summaries(r.Context(), page)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Semaphores []semaphoreJSON `json:"semaphores"`
		Next       string          `json:"next"`
	}{list, next})
}

// summaries looks at several semaphores at the same time.
func (s *Server) summaries(ctx context.Context, names []string) ([]semaphoreJSON, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	found := make([]engine.State, len(names))
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	places := make(chan struct{}, 8)
	for i, name := range names {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			st, err := s.stateOf(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			found[i] = st
			if err != nil {
				failed = err
			}
		})
	}
	all.Wait()
	list := []semaphoreJSON{}
	for i, name := range names {
		if found[i].Limit > 0 { // else gone since
			list = append(list, summary(name, found[i]))
		}
	}
	return list, failed
}

// setLimit stores a limit for good.
func (s *Server) setLimit(w http.ResponseWriter, r *http.Request, who *Who) error {
	q := struct {
		Limit int `json:"limit"`
	}{}
	if err := readJSON(w, r, &q, true); err != nil {
		return err
	}
	if err := engine.ValidateLimit(q.Limit); err != nil {
		return err
	}
	return s.operate(w, r, who, AuditRecord{What: "limit", Limit: q.Limit}, engine.Request{Kind: engine.SetLimit, Limit: q.Limit, Pin: true})
}

// unsetLimit ends what setLimit began.
func (s *Server) unsetLimit(w http.ResponseWriter, r *http.Request, who *Who) error {
	return s.operate(w, r, who, AuditRecord{What: "unset-limit"}, engine.Request{Kind: engine.UnsetLimit})
}

// pause stops all grants.
func (s *Server) pause(w http.ResponseWriter, r *http.Request, who *Who) error {
	q := struct {
		Limit int `json:"limit"`
	}{}
	if err := readJSON(w, r, &q, false); err != nil {
		return err
	}
	if q.Limit != 0 {
		if err := engine.ValidateLimit(q.Limit); err != nil {
			return err
		}
	} else {
		name, err := s.nameOf(r, who)
		if err != nil {
			return err
		}
		st, err := s.look(r.Context(), name, who)
		if err != nil {
			return err
		}
		if st.Limit == 0 { // a pause would give it a limit of 0
			return absent(name)
		}
		q.Limit = st.Limit
	}
	return s.operate(w, r, who, AuditRecord{What: "pause"}, engine.Request{Kind: engine.Pause, Limit: q.Limit})
}

// resume ends a pause.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, who *Who) error {
	return s.operate(w, r, who, AuditRecord{What: "resume"}, engine.Request{Kind: engine.Unpause})
}

// remove forgets a semaphore that nobody uses.
func (s *Server) remove(w http.ResponseWriter, r *http.Request, who *Who) error {
	return s.operate(w, r, who, AuditRecord{What: "remove"}, engine.Request{Kind: engine.Remove})
}

// revoke takes back a permit, gently.
func (s *Server) revoke(w http.ResponseWriter, r *http.Request, who *Who) error {
	return s.operateOn(w, r, who, "revoke", engine.Revoke)
}

// releaseAny gives back a permit for whoever holds it.
func (s *Server) releaseAny(w http.ResponseWriter, r *http.Request, who *Who) error {
	return s.operateOn(w, r, who, "release", engine.Release)
}

func (s *Server) operateOn(w http.ResponseWriter, r *http.Request, who *Who, what string, kind engine.Kind) error {
	id, err := engine.ParseID(r.PathValue("permit"))
	if err != nil {
		return err
	}
	requests := []engine.Request{}
	for _, inner := range s.innerIDs(id) {
		requests = append(requests, engine.Request{Kind: kind, ID: inner})
	}
	return s.operate(w, r, who, AuditRecord{What: what, Permit: id.String()}, requests...)
}

// operate carries out what an operator wants, and writes it down. Of several
// requests, about one permit under several ids, one that is done counts.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, who *Who, a AuditRecord, requests ...engine.Request) error {
	name, err := s.nameOf(r, who)
	if err != nil {
		return err
	}
	a.Name = name
	reply, err := s.once(r.Context(), name, requests)
	a.Result = resultOf(reply, 0, err)
	for i := range reply.Answers {
		if reply.Answers[i].Status == engine.Done {
			a.Result = "done"
		}
	}
	s.audit(r, who, a)
	switch {
	case err != nil:
		return err
	case a.Result == "in-use":
		return problem(http.StatusConflict, "in-use", "somebody holds a permit of %q, or waits for one", name)
	case a.Result == "gone" && a.Permit != "":
		return errGone
	case a.Result == "gone":
		return absent(name)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// once carries out a call in a session of its own.
func (s *Server) once(ctx context.Context, name string, requests []engine.Request) (engine.Reply, error) {
	inner, err := s.engine.Open(name, s.self, func(engine.Notification) {})
	if err != nil {
		return engine.Reply{}, err
	}
	defer func() { _ = inner.Close() }()
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	return inner.Step(ctx, engine.Call{Number: 1, Requests: requests})
}
