package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/internal/wire"
	"sema/watch"
)

// show answers with a semaphore, its holders and its waiters, at most max of each.
func (s *Server) show(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	name, err := s.nameOf(r, who)
	if err != nil {
		return err
	}
	most, err := number(r, "max", 1000, 100_000)
	if err != nil {
		return err
	}
	st, err := s.look(r.Context(), name)
	if err != nil {
		return err
	}
	if st.Limit == 0 {
		return absent(name)
	}
	v := view.Of(name, st)
	v.MoreHolders, v.MoreWaiters = max(0, len(v.Holders)-most), max(0, len(v.Waiters)-most)
	v.Holders, v.Waiters = v.Holders[:len(v.Holders)-v.MoreHolders], v.Waiters[:len(v.Waiters)-v.MoreWaiters]
	return writeJSON(w, v)
}

func absent(name string) error {
	return problem(http.StatusNotFound, "no-semaphore", "there is no semaphore %q: nobody uses it now, and nobody set its limit", name)
}

// find answers with the holders and waiters whose permit, caller, key, host or label matches, of
// all semaphores that the token may see.
func (s *Server) find(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	q := r.URL.Query()
	text := q.Get("of")
	if text == "" || len(text) > maxText {
		return &engine.ArgumentError{What: "of", Value: text, Want: "1 to 255 bytes of a caller's id, a permit, a key, a host or a label"}
	}
	answer := view.NewFound()
	prefixes, any := rights.Among(*who, q.Get("prefix"))
	if !any {
		return writeJSON(w, answer)
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	missed, err := s.watcher.Each(ctx, prefixes, func(name string, st engine.State) {
		v := view.Of(name, st) // st is shared
		for i := range v.Holders {
			v.Holders[i].Permit = s.remotes.outerText(v.Holders[i].Permit)
		}
		for i := range v.Waiters {
			v.Waiters[i].Permit = s.remotes.outerText(v.Waiters[i].Permit)
		}
		answer.Add(v, text)
	})
	if err != nil {
		return err
	}
	answer.Missed = missed
	answer.Sort()
	return writeJSON(w, answer)
}

// list answers with a page of the existing semaphores, sorted by name.
func (s *Server) list(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	most, err := number(r, "max", 100, 1000)
	if err != nil {
		return err
	}
	answer := struct {
		Semaphores []view.Summary `json:"semaphores"`
		Next       string         `json:"next"`
	}{Semaphores: []view.Summary{}}
	prefixes, any := rights.Among(*who, r.URL.Query().Get("prefix"))
	if !any {
		return writeJSON(w, answer)
	}
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	page, _, err := s.watcher.Summaries(ctx, watch.Query{Prefixes: prefixes, After: r.URL.Query().Get("after"), N: most + 1, Now: true})
	if err != nil {
		return err
	}
	if len(page) > most {
		page = page[:most]
		answer.Next = page[most-1].Name
	}
	for _, one := range page {
		if one.Limit == 0 && one.Err == nil {
			continue // it has ended since
		}
		shown := view.Summarize(one)
		if one.Err != nil {
			shown.Error = plain(one.Err)
		}
		answer.Semaphores = append(answer.Semaphores, shown)
	}
	return writeJSON(w, answer)
}

// setLimit pins a limit.
func (s *Server) setLimit(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	q := struct {
		Limit   *wire.Whole  `json:"limit"`
		Caps    []wire.Whole `json:"caps"`
		Pools   wire.Amounts `json:"pools"`
		Observe bool         `json:"observe"`
	}{}
	if err := readJSON(w, r, &q, true); err != nil {
		return err
	}
	limit, err := limitOf(q.Limit)
	if err != nil {
		return err
	}
	pools, err := engine.PoolsOf(q.Pools, 0)
	if err != nil {
		return err
	}
	a := access.Record{What: "limit", Limit: limit, Pools: pools, Observe: q.Observe}
	rule := sema.Rule{Limit: limit, Pools: pools, Observe: q.Observe}
	if q.Caps != nil { // all of them: one that the list leaves out ends
		caps, err := capsOf(q.Caps)
		if err != nil {
			return err
		}
		for i, n := range caps {
			a.Caps = append(a.Caps, new(n))
			rule.Caps[i] = cmp.Or(n, engine.MaxLimit)
		}
	}
	return s.operate(w, r, who, a, func(o *sema.Operator, ctx context.Context) error { return o.Set(ctx, rule) })
}

// keyOf is the key in a request's path: a segment for each name.
func keyOf(r *http.Request) (engine.Key, error) {
	list := []string{r.PathValue("first"), r.PathValue("second"), r.PathValue("third")}
	return engine.NewKey(slices.DeleteFunc(list, func(name string) bool { return name == "" })...)
}

// setKey sets the rule of a key.
func (s *Server) setKey(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	q := struct {
		Cap   *wire.Whole `json:"cap"`
		Share *wire.Whole `json:"share"`
	}{}
	if err := readJSON(w, r, &q, true); err != nil {
		return err
	}
	if q.Cap == nil && q.Share == nil {
		return &engine.ArgumentError{What: "rule", Value: "{}", Want: "a cap, a share or both"}
	}
	rule := sema.Rule{}
	if q.Cap != nil {
		rule.Limit = int(*q.Cap)
		err = engine.ValidateRange("", "cap", rule.Limit, 1, engine.MaxLimit)
	}
	if q.Share != nil {
		rule.Share = int(*q.Share)
		err = cmp.Or(err, engine.ValidateRange("", "share", rule.Share, 1, engine.MaxShare))
	}
	if err != nil {
		return err
	}
	a := access.Record{What: "set-key", Key: key, Cap: rule.Limit, Share: rule.Share}
	return s.operate(w, r, who, a, func(o *sema.Operator, ctx context.Context) error { return o.Set(ctx, rule, key.Names()...) })
}

// unsetKey ends the rule of a key.
func (s *Server) unsetKey(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	key, err := keyOf(r)
	if err != nil {
		return err
	}
	a := access.Record{What: "unset-key", Key: key}
	return s.operate(w, r, who, a, func(o *sema.Operator, ctx context.Context) error { return o.Unset(ctx, key.Names()...) })
}

// operation makes the handler of an operation on a semaphore.
func operation(what string, do func(*sema.Operator, context.Context) error) handler {
	return func(s *Server, w http.ResponseWriter, r *http.Request, who *access.Who) error {
		return s.operate(w, r, who, access.Record{What: what}, do)
	}
}

// operationOn makes the handler of an operation on a permit.
func operationOn(what string, do func(*sema.Operator, context.Context, string) error) handler {
	return func(s *Server, w http.ResponseWriter, r *http.Request, who *access.Who) error {
		name, err := s.nameOf(r, who)
		if err != nil {
			return err
		}
		id, err := engine.ParseID(r.PathValue("permit"))
		if err != nil {
			return problem(http.StatusNotFound, "no-permit", "%s", plain(err))
		}
		h, unknown := s.holder(r.Context(), name, id.String())
		a := access.Record{What: what, Permit: id.String(), Caller: h.Client.Caller, Key: h.Key}
		return s.operate(w, r, who, a, func(o *sema.Operator, ctx context.Context) error {
			if unknown != nil {
				return unknown
			}
			return do(o, ctx, h.ID)
		})
	}
}

// operate executes an operation of an operator and logs it.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, who *access.Who, a access.Record, do func(*sema.Operator, context.Context) error) error {
	name, err := s.nameOf(r, who)
	if err != nil {
		return err
	}
	o, err := sema.Operate(s.engine, name)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // after the answer; an error does not matter
	ctx, cancel := context.WithTimeout(r.Context(), stepTime)
	defer cancel()
	a.Name = name
	if st, err := o.State(ctx); err == nil { // the operation reports the error
		a = view.Before(a, st)
	}
	if err := s.auditFirst(a, who, r); err != nil {
		return err
	}
	err = do(o, ctx)
	a.Result = rights.ResultOf(err)
	switch {
	case errors.Is(err, sema.ErrNotFound):
		err = absent(name)
	case errors.Is(err, sema.ErrLost):
		err = errGone
	case errors.Is(err, sema.ErrInUse):
		err = problem(http.StatusConflict, "in-use", "the semaphore has holders or waiters")
	}
	s.options.Audit(rights.By(a, *who, r))
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
