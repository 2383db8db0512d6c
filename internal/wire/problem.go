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
	At          *At     `json:"at,omitempty"`          // whose cap, or which pool, is too small; nil: it is the limit
}

// At is what a request can never fit into: the cap of its key, or of one above it; or a pool.
type At struct {
	Key   engine.Key `json:"key,omitempty"`
	Cap   int        `json:"cap,omitempty"`
	Pool  string     `json:"pool,omitempty"`
	Limit int        `json:"limit,omitempty"` // how much there is of the pool; 0: there is no such pool
}

// ProblemType is the beginning of the type of every Problem. NoSession is the word that
// follows if the session of a call is not open.
const (
	ProblemType = "urn:sema:"
	NoSession   = "no-session"
)
