package server_test

import (
	"testing"

	"go.uber.org/goleak"

	"sema/internal/fixture/child"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	child.Play()
	goleak.VerifyTestMain(redistest.Settled(m))
}
