package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
)

// maxBody bounds the body of a request of the JSON API, in bytes.
const maxBody = 64 << 10

// acquireRequest is the body of a request for a permit.
type acquireRequest struct {
	Limit  int      `json:"limit"`
	Weight int      `json:"weight"`
	Lease  *seconds `json:"lease_seconds"`
	Wait   seconds  `json:"wait_seconds"`
	Label  string   `json:"label"`
	Slot   bool     `json:"slot"`
}

// seconds is a duration as JSON has it: a number, with fractions.
type seconds float64

func (s seconds) duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

const (
	defaultLease = 30 * time.Second
	maxWait      = time.Hour
)

// check fills in the defaults and refuses what is out of range.
func (q *acquireRequest) check() (lease time.Duration, err error) {
	if q.Weight == 0 {
		q.Weight = 1
	}
	lease = defaultLease
	if q.Lease != nil {
		if float64(*q.Lease) < sema.MinLease.Seconds() || float64(*q.Lease) > sema.MaxLease.Seconds() {
			return 0, &engine.ArgumentError{What: "lease_seconds", Value: float64(*q.Lease), Want: "0.1 … 31622400"}
		}
		lease = q.Lease.duration()
	}
	if err := engine.ValidateLimit(q.Limit); err != nil {
		return 0, err
	}
	switch {
	case q.Weight < 1 || q.Weight > sema.MaxLimit:
		return 0, &engine.ArgumentError{What: "weight", Value: q.Weight, Want: "1 … 2147483647"}
	case q.Wait < 0 || float64(q.Wait) > maxWait.Seconds():
		return 0, &engine.ArgumentError{What: "wait_seconds", Value: float64(q.Wait), Want: "0 … 3600"}
	}
	return lease, engine.ValidateText("label", q.Label, sema.MaxLabel)
}

// readJSON reads the body of a request. A body that is missing leaves v as it
// is, unless it is needed.
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
	if err := checkNames(text); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return problem(http.StatusBadRequest, "malformed", "the body is not what was expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if d.More() {
		return problem(http.StatusBadRequest, "malformed", "something follows the object in the body")
	}
	return nil
}

// checkNames refuses an object that has a field twice, or in upper case: the decoder
// takes any case, and the last of them, where others take the first.
func checkNames(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return problem(http.StatusBadRequest, "malformed", "the body is not what was expected: want an object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil //nolint:nilerr // the decoder says what is wrong
		}
		if seen[name] {
			return problem(http.StatusBadRequest, "malformed", "the body has the field %q twice", cut(name))
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return problem(http.StatusBadRequest, "malformed", "the body has an unknown field %q", cut(name))
		}
		seen[name] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil // likewise
		}
	}
	return nil
}

// unreadable is the problem of a body that cannot be read.
func unreadable(err error) error {
	var size *http.MaxBytesError
	if errors.As(err, &size) {
		return err
	}
	return problem(http.StatusRequestTimeout, "unreadable", "the body did not come to its end in time")
}

// number reads a number of the query.
func number(r *http.Request, name string, usual, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, &engine.ArgumentError{What: name, Value: text, Want: "1 … " + strconv.Itoa(most)}
	}
	return n, nil
}

// nameOf is the semaphore that a request is about, if the bearer may see it.
func (s *Server) nameOf(r *http.Request, who *Who) (string, error) {
	name := r.PathValue("name")
	if err := engine.ValidateName(name); err != nil {
		return "", err
	}
	return name, s.sees(who, name)
}

// sees refuses what the prefixes of a token do not cover.
func (s *Server) sees(who *Who, name string) error {
	if who.Sees(name) {
		return nil
	}
	return problem(http.StatusForbidden, "forbidden", "the token %q is not for semaphores of this name", who.Name)
}

func forbidden(who *Who, right access.Right) *Problem {
	return problem(http.StatusForbidden, "forbidden", "the token %q has the right %v; this needs %v", who.Name, who.Right, right)
}
