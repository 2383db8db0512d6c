package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
)

// actTime bounds a change.
const actTime = 10 * time.Second

// kind is what all changes of a kind have: how one is asked about, and how it is done. A change
// that somebody asks for is the record that is kept of it, with the value that is wanted.
type kind struct {
	button, title, note, done string
	fields                    func(access.Record, engine.State, url.Values) []field // what there is to fill in; nil: nothing
	do                        func(context.Context, *sema.Operator, access.Record) error
	undo                      func(access.Record, engine.State) (says string, back url.Values) // nil: nothing undoes it
	danger                    bool
}

// field is one that somebody fills in. The first has the focus.
type field struct {
	Name, Label, Type, Value, Hint, Title, Pattern string
	Min, Max                                       int // of a number
	Required                                       bool
}

var kinds = map[string]kind{
	"limit": {
		button: "Set", title: "Change the limit", done: "The limit is set.",
		note: "It holds for all programs and outlives idleness, until it is unset. With less of it nobody loses a permit: grants go on once " +
			"enough came back, and waiters that weigh more than a limit fail.",
		fields: limitFields, do: setLimit, undo: undoLimit,
	},
	"unset-limit": {
		button: "Unset the limit", title: "Unset the limit?", done: "The limit is not kept any more.",
		note: "The limit stays as it is while the semaphore is in use. Once it has been idle it is forgotten, and the next program's limit counts.",
		do:   func(ctx context.Context, o *sema.Operator, _ access.Record) error { return o.Unset(ctx) }, undo: undoUnset,
	},
	"set-key": {
		button: "Set cap and share", title: "Set the cap and the share of a key", done: "The cap and the share of the key are set.",
		note: "A field that is left empty stays as it is. A larger cap or share serves those who wait at once; " +
			"a smaller cap takes no permit away, and waiters that weigh more than it fail. It outlives idleness, until it is unset.",
		fields: keyFields, undo: undoKey,
		do: func(ctx context.Context, o *sema.Operator, x access.Record) error {
			return o.Set(ctx, sema.Rule{Limit: x.Cap, Share: x.Share}, x.Key.Names()...)
		},
	},
	"unset-key": {
		button: "Unset cap and share", title: "Unset the cap and the share of this key?", done: "The key has what all keys have.",
		note: "Then it has the cap and the share that all keys have.",
		do: func(ctx context.Context, o *sema.Operator, x access.Record) error {
			return o.Unset(ctx, x.Key.Names()...)
		}, undo: undoKey,
	},
	"pause": {
		button: "Pause", title: "Pause this semaphore?", done: "The semaphore is paused.",
		note: "Nobody is granted a permit until it is unpaused. Holders keep their permits and may go on; waiters go on waiting.",
		do:   func(ctx context.Context, o *sema.Operator, _ access.Record) error { return o.Pause(ctx) }, undo: undoPause,
	},
	"unpause": {
		button: "Unpause", title: "Unpause this semaphore?", done: "The semaphore is not paused any more.",
		note: "Those who wait are served at once, as far as the limit allows. A cooldown ends as well.",
		do:   func(ctx context.Context, o *sema.Operator, _ access.Record) error { return o.Unpause(ctx) }, undo: undoPause,
	},
	"revoke": {
		button: "Revoke", title: "Revoke this permit?", done: "The permit is revoked. It is free when its holder has stopped.", danger: true,
		note: "Its holder is told to stop, and has until the end of its lease. Others are granted when the holder has stopped, or when the lease has ended: the limit holds all the time.",
		do:   func(ctx context.Context, o *sema.Operator, x access.Record) error { return o.Revoke(ctx, x.Permit) },
	},
	"release": {
		button: "Release at once", title: "Release this permit at once?", done: "The permit is released.", danger: true,
		note: "Somebody else may have it before its holder has noticed, so more than the limit may run for a while. Do this when the holder is certainly gone; otherwise revoke.",
		do:   func(ctx context.Context, o *sema.Operator, x access.Record) error { return o.Release(ctx, x.Permit) },
	},
	"remove": {
		button: "Remove", title: "Remove this semaphore?", done: "The semaphore is removed.", danger: true,
		note: "Its limit is forgotten, and the next program's limit counts. This fails if somebody holds a permit or waits.",
		do:   func(ctx context.Context, o *sema.Operator, _ access.Record) error { return o.Remove(ctx) },
	},
}

func limitFields(x access.Record, st engine.State, v url.Values) []field {
	for pool := range x.Pools.All() {
		there, kind := view.Pool(st.Pools, pool).Amount(), "number"
		if there.Per > 0 {
			kind = "text"
		}
		return []field{{Name: "amount", Label: "Amount of " + pool, Type: kind, Value: cmp.Or(v.Get("amount"), there.String()), Max: engine.MaxLimit, Required: true}}
	}
	list := []field{{Name: "limit", Label: "Limit", Type: "number", Value: strconv.Itoa(cmp.Or(x.Limit, st.Limit)), Min: 0, Max: engine.MaxLimit, Required: true}} // of 0 the error names the pause
	if view.Keyed(st) {
		list = append(list, field{Name: "caps", Label: "Caps of keys", Type: "text", Value: cmp.Or(v.Get("caps"), view.CapsText(st.Caps)), Pattern: ` *(\d+|-) *(, *(\d+|-) *){0,2}`,
			Title: "For keys of one name, of two, of three, with commas between: 20,4. - is no cap."})
	}
	if v.Get("of") == "caps" {
		slices.Reverse(list)
	}
	return list
}

func setLimit(ctx context.Context, o *sema.Operator, x access.Record) error {
	rule := sema.Rule{Limit: x.Limit, Pools: x.Pools}
	for i, n := range x.Caps {
		if n != nil {
			rule.Caps[i] = cmp.Or(*n, engine.MaxLimit)
		}
	}
	return o.Set(ctx, rule)
}

// actAddress is where a change is asked about. on has a field and its value, if it is
// about a permit or a key.
func actAddress(do, name string, on ...string) string {
	v := url.Values{"do": {do}, "name": {name}}
	if len(on) == 2 {
		v.Set(on[0], on[1])
	}
	return "act?" + v.Encode()
}

// actions are what can be done to a semaphore as it is, the usual one first. A value has its own beside it.
func actions(name string, st engine.State) (list []link) {
	keys := []string{"pause", "set-key"}
	if st.Paused {
		keys[0] = "unpause"
	}
	if st.Cooldown != nil && !st.Paused {
		list = append(list, link{"End the cooldown…", actAddress("unpause", name)})
	}
	if st.Pinned {
		keys = append(keys, "unset-limit")
	}
	if len(st.Holders)+len(st.Waiters) == 0 {
		keys = append(keys, "remove")
	}
	for _, key := range keys {
		list = append(list, link{kinds[key].button + "…", actAddress(key, name)})
	}
	return list
}

// changeOf reads a change, and checks all of it. One that is asked about may lack its values.
func changeOf(v url.Values, asks bool, a visitor) (access.Record, kind, error) {
	x := access.Record{What: v.Get("do"), Name: v.Get("name"), Permit: v.Get("permit")}
	d, ok := kinds[x.What]
	if !ok {
		return x, d, fmt.Errorf("there is no such action: %q", cut(x.What, 60))
	}
	if err := engine.ValidateName(x.Name); err != nil {
		return x, d, err
	}
	if !rights.Sees(a.Who, x.Name) {
		return x, d, sema.ErrNotFound
	}
	switch x.What {
	case "limit":
		var err, wrong error
		if pool := v.Get("pool"); pool != "" {
			if text := v.Get("amount"); strings.Contains(text, "/") { // a rate
				x.Pools, err = engine.ParsePools(pool+"="+text, 0)
				return x, d, err
			}
			n, err := wholeOf(v, "amount")
			if err == nil && v.Get("amount") == "" && !asks {
				err = &engine.ArgumentError{What: "amount", Value: "", Want: "a whole number"}
			}
			x.Pools, wrong = engine.NewPools(map[string]int{pool: n}, 0)
			return x, d, cmp.Or(err, wrong)
		}
		if asks && !v.Has("limit") {
			return x, d, nil
		}
		x.Limit, err = wholeOf(v, "limit")
		if text := v.Get("caps"); text != "" {
			var caps engine.Caps
			caps, wrong = view.ParseCaps(text)
			x.Caps = listOf(caps)
		}
		return x, d, cmp.Or(err, wrong, engine.ValidateLimit(x.Limit))
	case "set-key", "unset-key":
		var err, wrong, bad error
		if x.Key, bad = engine.ParseKey(v.Get("key")); bad == nil && x.Key == "" && (!asks || x.What == "unset-key") {
			bad = errors.New("there is no key: want one")
		}
		x.Cap, err = wholeOf(v, "cap")
		x.Share, wrong = wholeOf(v, "share")
		return x, d, cmp.Or(bad, err, wrong)
	case "revoke", "release":
		_, err := engine.ParseID(x.Permit)
		return x, d, err
	}
	return x, d, nil
}

func cut(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

type confirmView struct {
	frame
	Name                  string     // of the semaphore
	Key                   engine.Key // that it is about, if any
	Heading, Note, Button string
	Danger                bool
	Action                string // where the form goes
	Hidden                url.Values
	Fields                []field
	Of                    *hostPermit // the permit that it is about
	Unset                 string      // the address of the form that ends a rule; empty: there is none
	Back                  string
}

// mayAct answers those who may not change anything, or not that.
func (h *Handler) mayAct(w http.ResponseWriter, r *http.Request, a visitor, v url.Values) (x access.Record, d kind, ok bool) {
	if !rights.May(a.Who, rights.Admin) {
		h.refused(r, a, v, "the right is not enough")
		h.fail(w, r, a, http.StatusForbidden, "You may look, but not change anything.")
		return x, d, false
	}
	x, d, err := changeOf(v, r.Method != http.MethodPost, a)
	if err != nil {
		if !rights.Sees(a.Who, x.Name) {
			h.refused(r, a, v, "the name is not one of those that may be seen")
		}
		h.failed(w, r, a, err, http.StatusBadRequest, h.sentence(err))
		return x, d, false
	}
	return x, d, true
}

// refused writes down that somebody tried to change what they may not.
func (h *Handler) refused(r *http.Request, a visitor, v url.Values, why string) {
	if r.Method == http.MethodPost {
		h.options.Audit(rights.Refused(a.Who, r, v.Get("name"), cut(v.Get("do"), 60)+": "+why))
	}
}

func (h *Handler) confirmPage(w http.ResponseWriter, r *http.Request, a visitor) {
	x, d, ok := h.mayAct(w, r, a, r.URL.Query())
	if !ok {
		return
	}
	st, err := h.watcher.State(r.Context(), x.Name)
	if err == nil && st.Limit == 0 {
		err = sema.ErrNotFound
	}
	v := confirmView{Name: x.Name, Key: x.Key, Heading: d.title, Note: d.note, Button: d.button, Danger: d.danger, Action: "act", Back: semaphoreAddress(x.Name), Hidden: url.Values{}}
	if d.fields != nil {
		v.Fields = d.fields(x, st, r.URL.Query())
	}
	for _, key := range []string{"do", "name", "permit", "pool", "key"} {
		if text := r.URL.Query().Get(key); text != "" {
			v.Hidden.Set(key, text)
		}
	}
	for pool := range x.Pools.All() {
		v.Heading = "Change the pool " + pool
	}
	if x.What == "set-key" && view.LookAt(st).Key(x.Key).Ruled {
		v.Unset = actAddress("unset-key", x.Name, "key", x.Key.String())
	}
	for _, held := range st.Holders {
		if held.ID == x.Permit {
			v.Of = &hostPermit{Holder: held, caller: h.caller(held.Client, held.ID)}
		}
	}
	if err == nil && x.Permit != "" && v.Of == nil {
		err = fmt.Errorf("%w: it was released, or its lease has ended", sema.ErrLost)
	}
	if err != nil {
		h.failed(w, r, a, err, http.StatusServiceUnavailable, h.sentence(err))
		return
	}
	v.frame = h.frame(v.Heading, a)
	h.render(w, http.StatusOK, "confirm", v)
}

func (h *Handler) act(w http.ResponseWriter, r *http.Request, a visitor) {
	x, d, ok := h.mayAct(w, r, a, r.PostForm)
	if !ok {
		return
	}
	// A change that was confirmed is done even if the browser is gone by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTime)
	defer cancel()
	before, err := h.perform(ctx, rights.By(x, a.Who, r), d)
	if err == nil && x.What == "limit" && r.PostForm.Has("unset") { // an undo, of a limit that nobody had set before
		_, err = h.perform(ctx, rights.By(access.Record{What: "unset-limit", Name: x.Name}, a.Who, r), kinds["unset-limit"])
	}
	if err != nil {
		h.failed(w, r, a, err, http.StatusInternalServerError, h.sentence(err))
		return
	}
	h.offerUndo(w, r, x, d, before)
	_, _ = h.watcher.State(ctx, x.Name) // so that the page to come does not show what was before
	to := semaphoreAddress(x.Name) + "&"
	if x.What == "remove" {
		to = "./?"
	}
	see(w, to+"done="+x.What)
}

var errAudit = errors.New("the audit log cannot be written, so nothing was changed")

// perform changes something, and writes down what became of it. It returns what was before. Without knowing that it tries
// nothing: a limit would make a semaphore anew.
func (h *Handler) perform(ctx context.Context, x access.Record, d kind) (before engine.State, err error) {
	o, err := sema.Operate(h.engine, x.Name)
	if err == nil {
		defer func() { _ = o.Close() }() // the answer is there
		before, err = o.State(ctx)
	}
	x = view.Before(x, before)
	if h.options.AuditFirst != nil && h.options.AuditFirst(x) != nil {
		return before, errAudit
	}
	if err == nil {
		err = d.do(ctx, o, x)
	}
	x.Result = rights.ResultOf(err)
	h.options.Audit(x)
	h.history.Act(x)
	return before, err
}

// sentence is an error for those who read pages.
func (h *Handler) sentence(err error) string { return view.Trouble(h.options.Engine, err) }

func statusOf(err error, otherwise int) int {
	var argument *engine.ArgumentError
	switch {
	case errors.Is(err, errAudit):
		return http.StatusServiceUnavailable
	case errors.As(err, &argument):
		return http.StatusBadRequest
	case errors.Is(err, sema.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, sema.ErrLost), errors.Is(err, sema.ErrInUse):
		return http.StatusConflict
	case errors.Is(err, sema.ErrEngine), errors.Is(err, sema.ErrClosed):
		return http.StatusServiceUnavailable
	}
	return otherwise
}
