package redisson_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/redisson"
)

// Tests wait for servers more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("all of it needs a server")
		return
	}
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(redistest.Settled(m))
}

// slow is a poll interval longer than any test, for tests in which something
// else must wake the waiters.
const slow = time.Hour

// newClient makes a Client that is closed at the end of the test. It does not give
// up because a machine stands still.
func newClient(t testing.TB, rdb redis.UniversalClient, o redisson.Options) *redisson.Client {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = expect.Patience
	}
	c, err := redisson.New(rdb, &o)
	expect.OK(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redisson.ErrUnsettled) {
			t.Error(err)
		}
	})
	return c
}

func counter(t testing.TB, c *redisson.Client, name string) *redisson.Semaphore {
	t.Helper()
	s, err := c.Semaphore(name)
	expect.OK(t, err)
	return s
}

func expirable(t testing.TB, c *redisson.Client, name string) *redisson.ExpirableSemaphore {
	t.Helper()
	s, err := c.ExpirableSemaphore(name)
	expect.OK(t, err)
	return s
}

// fixture is a server with a client of ours and a plain one.
type fixture struct {
	t      testing.TB
	ctx    context.Context
	server *redistest.Server
	rdb    *redis.Client
	client *redisson.Client
}

func setUp(t testing.TB, o redisson.Options) fixture {
	t.Helper()
	s := redistest.Start(t)
	rdb := s.Client()
	return fixture{t, expect.Within(t), s, rdb, newClient(t, rdb, o)}
}

func wants[T comparable](t testing.TB, what string, want T) func(T, error) {
	t.Helper()
	return func(got T, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
}

func fails(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v; want %v", what, err, want)
	}
	if !strings.HasPrefix(err.Error(), "redisson: ") {
		t.Fatalf("%s: %q lacks the package's prefix", what, err)
	}
}

// subscribers is how many connections listen for the semaphore of that name.
func subscribers(t testing.TB, ctx context.Context, rdb *redis.Client, name string) int64 {
	t.Helper()
	channel := "redisson_sc:{" + name + "}"
	m, err := rdb.PubSubNumSub(ctx, channel).Result()
	expect.OK(t, err)
	return m[channel]
}

// acquiring runs a blocking acquisition. Its error arrives on the channel.
func acquiring(acquire func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- acquire() }()
	return result
}

// errorOf waits for the error of acquiring.
func errorOf(t testing.TB, what string, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(expect.Patience):
		t.Fatalf("%s: still waiting", what)
		return nil
	}
}

// settled waits until the counter says n.
func settled(t testing.TB, f fixture, name string, n int) {
	t.Helper()
	expect.Until(t, "permits to settle", func() bool {
		v, err := f.rdb.Get(f.ctx, name).Int()
		return err == nil && v == n
	})
}
