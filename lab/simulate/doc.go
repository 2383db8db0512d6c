// Package simulate runs many client machines and one ledger in virtual time,
// from one seed. Messages between them are delayed, lost, late and doubled;
// clients crash, stand still and go on; the server restarts with and without
// its data, refuses calls, and has its clock stepped; limits change and permits
// are revoked. After every event the promises are checked.
//
// The same seed does the same, always. A seed that fails is a bug report: it
// prints its last events and the command that replays it.
package simulate
