package semagrpc

import (
	"sema/admit"
	"sema/engine"
)

// Observer is told what nobody else is told. Fields may be nil. The functions are
// called from the goroutine at hand, and must not block.
type Observer struct {
	// EngineFailed: the engine did not answer for a call. Outage decided what became
	// of it.
	EngineFailed func(EngineFailed)

	// Outage: with admit.Open or admit.Local, an outage of the engine began, or is over.
	// Default: slog is told, with a WARN and an INFO.
	Outage func(admit.Outage)

	// Abandoned: the garbage collector found a client's stream that had not ended. It
	// has been cancelled, and its permit given back.
	Abandoned func(Abandoned)
}

// EngineFailed is what Observer.EngineFailed is told.
type EngineFailed struct {
	Method string     // the full name
	Key    engine.Key // as Limit.Key has it; without that the name of Limit.Semaphore, or the method
	Err    error      // what the engine said, to this call or to the last that asked it

	Admitted bool // the call goes on without a permit
}

// Abandoned is what Observer.Abandoned is told.
type Abandoned struct {
	Method string     // the full name
	Key    engine.Key // as for EngineFailed
}
