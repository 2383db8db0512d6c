// Package faults, with its parts, tries the promises of sema on real processes
// and real servers, while both are broken.
//
// A round has a ground (servers, and what lies between them and the workers), a
// load (processes that acquire and release) and a plan of faults that a seed
// makes. The processes record what they saw on the host's monotonic clock. When
// the round is over, a judge reads the record and says which promises were
// broken, and which breaches a fault excuses because no client could have
// prevented them.
//
//	ground   what rounds take place on: servers, proxies, and their faults
//	history  the record, and the judge
//	run      the command that plays rounds and writes down what came out
//	report   the command that makes a page of it
package faults
