package main

import (
	"sema"
	"sema/internal/faults/history"
)

// originals are semaphores that are not sema's, by the name of what is planted.
var originals = map[string]func(h *handle, at *place, s history.Semaphore) error{}

// plantedBugs are engines with a bug, by its name.
var plantedBugs = map[string]func(at *place, seed uint64) sema.Engine{}
