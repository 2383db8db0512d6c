// Package deploy has the tests of what is in this directory.
package deploy
