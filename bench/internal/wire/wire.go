// Package wire is what the runner and the drivers say to each other: one line
// of JSON each, commands on the driver's standard input, answers on its
// standard output. Drivers in other languages are written to the same words.
package wire

// Command tells a driver to run one round, or to end.
type Command struct {
	RunMS int64 `json:"run_ms,omitempty"`
	Quit  bool  `json:"quit,omitempty"`
}

// Ready is a driver's first line: it is connected and its workers are prepared.
type Ready struct {
	Ready    bool              `json:"ready"`
	Versions map[string]string `json:"versions"`
}

// Answer is what a driver did in one round.
type Answer struct {
	Done      int64      `json:"done"`              // pairs of acquire and release
	ElapsedNS int64      `json:"elapsed_ns"`        // until the last pair was done, or longer
	HoldNS    int64      `json:"hold_ns"`           // all holds together, as really slept
	Waits     [][2]int64 `json:"waits"`             // how long an acquire took (two digits), and how many did
	Unserved  int64      `json:"unserved"`          // who were sent away; Waits has how long they had waited
	CPUNS     int64      `json:"cpu_ns"`            // used by the process
	Mallocs   uint64     `json:"mallocs,omitempty"` // heap objects allocated; Go drivers only
	MaxHeld   int64      `json:"max_held"`          // most permits held by the process at once; 0: not counted
}

// Failure is a driver's last line when something went wrong.
type Failure struct {
	Error string `json:"error"`
}
