// Package registers runs many processes' engines of package register on one store, in
// virtual time, from one seed: the whole way from Acquire to the row, with real goroutines. Messages to the store are
// slow, late and lost, and so are its answers; it crashes and forgets what it may, its clock is
// fast or slow and is set, and processes are cut off. The promises are checked whenever somebody gets a permit.
//
// It has tests only. A seed does much the same each time: goroutines that wake at one instant
// may run in another order.
package registers
