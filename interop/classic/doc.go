// Package classic lets the Python of Redis in Action and sema's package
// classic work on the same keys. Its tests need Python with redis-py and run
// by run.sh only.
package classic
