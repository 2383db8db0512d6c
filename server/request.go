package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/wire"
)

// maxBody is the largest body of a request of the JSON API, in bytes.
const maxBody = 64 << 10

// acquireRequest is the body of a request for a permit.
type acquireRequest struct {
	Limit  *wire.Whole `json:"limit"`
	Weight wire.Whole  `json:"weight"`
	Lease  *seconds    `json:"lease_seconds"`
	Wait   seconds     `json:"wait_seconds"`
	Label  string      `json:"label"`
	Slot   bool        `json:"slot"`

	Key      names        `json:"key"`
	Caps     []wire.Whole `json:"caps"`
	Pools    wire.Amounts `json:"pools"`
	Take     wire.Amounts `json:"take"`
	Priority seconds      `json:"priority_seconds"`

	OnConflict string `json:"on_conflict"` // see sema.LimitPolicy
}

// names are those of a key in JSON: a text is one name, or none if it is empty. Else it is a list of names.
type names []string

// UnmarshalJSON implements json.Unmarshaler. It checks no name: see engine.NewKey.
func (k *names) UnmarshalJSON(text []byte) error {
	var one string
	switch {
	case json.Unmarshal(text, &one) != nil && json.Unmarshal(text, (*[]string)(k)) != nil:
		return fmt.Errorf("%s: want a key, which is a text or a list of texts", shorten(string(text)))
	case strings.Contains(one, "/"): // the command and the dashboard read it as several names
		list, _ := json.Marshal(strings.Split(one, "/"))
		return &engine.ArgumentError{What: "key", Value: one, Want: fmt.Sprintf("%s for these names, or [%q] for one with a slash", list, one)}
	case one != "":
		*k = names{one}
	}
	return nil
}

// seconds is a duration in JSON: a number that may have a fraction.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

const (
	defaultLease = 30 * time.Second
	maxWait      = time.Hour
	maxPriority  = 24 * time.Hour
)

// check refuses values out of range, and returns the terms and what the permit counts for.
func (q *acquireRequest) check() (terms client.Terms, target protocol.Target, err error) {
	var lease, limit, caps, pools error
	terms.Lease, lease = leaseOf(q.Lease, defaultLease)
	terms.Limit, limit = limitOf(q.Limit)
	terms.Caps, caps = capsOf(q.Caps)
	terms.Pools, pools = engine.PoolsOf(q.Pools, 1)
	var name, taken error
	target.Key, name = engine.NewKey(q.Key...)
	if target.Takes, taken = engine.PoolsOf(q.Take, 1); taken == nil {
		taken = protocol.Target{Takes: target.Takes}.Validate()
	}
	switch {
	case q.Weight < 1 || q.Weight > engine.MaxLimit:
		err = &engine.ArgumentError{What: "weight", Value: q.Weight, Want: "1 … 2147483647"}
	case q.Wait < 0 || float64(q.Wait) > maxWait.Seconds():
		err = &engine.ArgumentError{What: "wait_seconds", Value: float64(q.Wait), Want: "0 … 3600"}
	case q.Priority < 0 || float64(q.Priority) > maxPriority.Seconds():
		err = &engine.ArgumentError{What: "priority_seconds", Value: float64(q.Priority), Want: "0 … 86400"}
	case q.OnConflict != "" && q.OnConflict != "newest" && q.OnConflict != "stored" && q.OnConflict != "strict":
		err = &engine.ArgumentError{What: "on_conflict", Value: q.OnConflict, Want: "newest, stored or strict"}
	}
	return terms, target, cmp.Or(lease, limit, caps, pools, err, name, taken, target.Validate(), engine.ValidateText("label", q.Label, engine.MaxLabel))
}

// capsOf are the caps of a body. Those that it leaves out are 0.
func capsOf(list []wire.Whole) (caps engine.Caps, err error) {
	if len(list) > len(caps) {
		return caps, &engine.ArgumentError{What: "number of caps", Value: len(list), Want: fmt.Sprintf("at most %d", len(caps))}
	}
	for i, n := range list {
		caps[i] = int(n)
	}
	return caps, caps.Validate()
}

// leaseOf is the lease_seconds of a body, or usual if it has none.
func leaseOf(s *seconds, usual time.Duration) (time.Duration, error) {
	if s == nil {
		return usual, nil
	}
	if float64(*s) < engine.MinLease.Seconds() || float64(*s) > engine.MaxLease.Seconds() {
		return 0, &engine.ArgumentError{What: "lease_seconds", Value: float64(*s), Want: "0.1 … 31622400"}
	}
	return s.duration(), nil
}

// limitOf is the limit of a body. It must not be missing.
func limitOf(n *wire.Whole) (int, error) {
	if n == nil {
		return 0, problem(http.StatusBadRequest, "argument", "the field \"limit\" is missing: want 1 … %d", engine.MaxLimit)
	}
	return int(*n), engine.ValidateLimit(int(*n))
}

// readJSON decodes the body of a request into v. A missing body leaves v unchanged, or is
// an error if needed is set.
func readJSON(w http.ResponseWriter, r *http.Request, v any, needed bool) error {
	body := http.MaxBytesReader(w, r.Body, maxBody)
	text, err := io.ReadAll(body)
	if err != nil {
		return unreadable(err)
	}
	if len(text) == 0 && !needed {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "media-type", "want the content type application/json")
	}
	if err := wire.Decode(text, v); err != nil {
		if argument, ok := errors.AsType[*engine.ArgumentError](err); ok {
			return argument
		}
		return problem(http.StatusBadRequest, "malformed", "the body is not what was expected: %v", err)
	}
	return nil
}

// unreadable is the problem of a body that cannot be read.
func unreadable(err error) error {
	var size *http.MaxBytesError
	if errors.As(err, &size) {
		return err
	}
	return problem(http.StatusRequestTimeout, "unreadable", "the body was not complete in time")
}

// number reads a number from the query: 1 … most, or usual if it is missing.
func number(r *http.Request, name string, usual, most int) (int, error) {
	q := r.URL.Query()
	if !q.Has(name) {
		return usual, nil
	}
	text := q.Get(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most || strings.HasPrefix(text, "+") {
		return 0, &engine.ArgumentError{What: name, Value: text, Want: "1 … " + strconv.Itoa(most)}
	}
	return n, nil
}

// nameOf is the name of a request's semaphore, from its path or else its query. It fails if
// the sender may not see it.
func (s *Server) nameOf(r *http.Request, who *access.Who) (string, error) {
	name := cmp.Or(r.PathValue("name"), r.URL.Query().Get("name"))
	if err := engine.ValidateName(name); err != nil {
		return "", err
	}
	return name, s.checkSees(who, name)
}

// checkSees refuses a name that the prefixes of a token do not cover.
func (s *Server) checkSees(who *access.Who, name string) error {
	if rights.Sees(*who, name) {
		return nil
	}
	return problem(http.StatusForbidden, "forbidden", "the token %q is not for semaphores of this name", who.Name).of(name)
}

func forbidden(who *access.Who, right string) *httpProblem {
	return problem(http.StatusForbidden, "forbidden", "the token %q has the right %v; this needs %v", who.Name, who.Right, right)
}
