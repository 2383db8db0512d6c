// Package measured holds the figures of the comparison page: what the tests of
// package classic measured when they were last run with -update.
package measured

import (
	_ "embed"
	"encoding/json"
)

//go:embed skew.json
var skewJSON []byte

//go:embed roundtrips.json
var roundTripsJSON []byte

// Skew is the outcome of the over-admission runs.
type Skew struct {
	Redis   string        `json:"redis"`   // version of the server
	Clients int           `json:"clients"` // each with a clock of its own
	Limit   int           `json:"limit"`   // 1 for Lock
	HoldMS  int           `json:"hold_ms"` // time held, about
	LeaseMS int           `json:"lease_ms"`
	RunMS   int           `json:"run_ms"` // virtual time per run
	Spread  []SkewRun     `json:"spread"` // clocks evenly spread over skew
	Near    NearEndOfHold `json:"near"`
}

// SkewRun is one run of one type at one skew.
type SkewRun struct {
	Type     string `json:"type"`
	SkewMS   int    `json:"skew_ms"`
	Acquired int    `json:"acquired"` // permits that were granted
	Extra    int    `json:"extra"`    // of these, granted while the limit was held
	Most     int    `json:"most"`     // most holders at once
}

// NearEndOfHold is a second set of runs: permits are held for most of their
// lease and one clock is ahead of all others.
type NearEndOfHold struct {
	Clients int       `json:"clients"`
	Limit   int       `json:"limit"`
	HoldMS  int       `json:"hold_ms"`
	LeaseMS int       `json:"lease_ms"`
	RunMS   int       `json:"run_ms"`
	Runs    []SkewRun `json:"runs"`
}

// RoundTrips says how many round trips each operation of a type took.
type RoundTrips struct {
	Type    string `json:"type"`
	Acquire int    `json:"acquire"`
	Refused int    `json:"refused"`           // an Acquire that found no permit
	Refresh int    `json:"refresh,omitempty"` // absent: no such operation
	Release int    `json:"release"`
}

// ReadSkew returns the committed over-admission runs.
func ReadSkew() (s Skew, err error) { return s, json.Unmarshal(skewJSON, &s) }

// ReadRoundTrips returns the committed round trips.
func ReadRoundTrips() (r []RoundTrips, err error) { return r, json.Unmarshal(roundTripsJSON, &r) }
