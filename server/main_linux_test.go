package server_test

import (
	"testing"

	"go.uber.org/goleak"

	"sema/lab/child"
)

func TestMain(m *testing.M) {
	child.Play()
	goleak.VerifyTestMain(m)
}
