// Package clients has the clients of the server for other languages, a package of
// their ecosystem each: python and js. The tests here start real servers over a real
// Redis and run the clients' own tests, type checks aside, which make types has.
package clients
