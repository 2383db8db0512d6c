// Package interop holds the tests of package redisson against Redisson itself:
// a small Java program (src/) does with Redisson what the tests, behind the
// build tag interop, tell it. Run them with run.sh, which builds the program.
package interop
