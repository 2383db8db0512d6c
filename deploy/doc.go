// Package deploy tests the files of this directory.
package deploy
