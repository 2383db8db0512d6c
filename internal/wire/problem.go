package wire

import "sema/engine"

// Problem is an error in the form of RFC 9457, with which the server refuses a request.
type Problem struct {
	Type   string `json:"type"` // ProblemType and a word that never changes
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	Hint        string  `json:"hint,omitempty"`        // what to try
	RetryAfter  float64 `json:"retryAfter,omitempty"`  // seconds; rounded up in the header
	NotExecuted bool    `json:"notExecuted,omitempty"` // it is certain that nothing was changed
	Temporary   bool    `json:"temporary,omitempty"`   // the same request may succeed soon
	At          *At     `json:"at,omitempty"`          // whose cap is too small; nil: no key's
}

// At is a key whose cap a request can never fit into: the request's own key, or one above it.
type At struct {
	Key engine.Key `json:"key"`
	Cap int        `json:"cap"`
}

// ProblemType is the beginning of the type of every Problem. NoSession is the word that
// follows if the session of a call is not open.
const (
	ProblemType = "urn:sema:"
	NoSession   = "no-session"
)
