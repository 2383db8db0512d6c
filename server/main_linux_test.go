package server_test

import (
	"testing"

	"go.uber.org/goleak"

	"sema/lab/child"
	"sema/lab/redistest"
)

func TestMain(m *testing.M) {
	child.Play()
	goleak.VerifyTestMain(redistest.Settled(m))
}
