// Package openapi holds the server's description of its API against tools of
// others: schemathesis makes requests of it and judges the answers, and
// openapi-python-client makes a client of it. The tests are behind the build tag
// interop; run.sh fetches the tools and runs them.
package openapi
