package sema

import "sema/engine"

type (
	// Engine is where semaphores live; see package engine.
	Engine = engine.Engine

	// State is a snapshot of a semaphore.
	State = engine.State

	// Holder is a client with a permit.
	Holder = engine.Holder

	// Waiter is a client with a ticket in the queue.
	Waiter = engine.Waiter

	// KeyState is what State says of a key.
	KeyState = engine.KeyState

	// ArgumentError says which value was refused and what would have been
	// taken. Nothing was changed.
	ArgumentError = engine.ArgumentError
)
