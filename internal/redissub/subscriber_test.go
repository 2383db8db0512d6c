package redissub_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema/internal/redissub"
	"sema/lab/expect"
	"sema/lab/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listening is what a subscriber says of its channels.
type listening struct{ confirmed, messages chan string }

func (l listening) Confirmed(_ *redissub.Subscriber, channel string) { l.confirmed <- channel }
func (l listening) Message(_, payload string)                        { l.messages <- payload }
func (l listening) Refused(*redissub.Subscriber, error)              {}
func (l listening) Ended(*redissub.Subscriber, string)               {}

// A connection that was cut is made again once. go-redis would make one more, which
// listens for a moment and is closed unread.
func TestOneConnectionForEachThatIsCut(t *testing.T) {
	server := redistest.Start(t)
	ctx, admin := expect.Within(t), server.Client()
	subscribed := func() string { // how often, since the server began
		_, rest, _ := strings.Cut(admin.Info(ctx, "commandstats").Val(), "cmdstat_subscribe:calls=")
		calls, _, _ := strings.Cut(rest, ",")
		return calls
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	events := listening{make(chan string, 100), make(chan string, 100)}
	s := redissub.New(redissub.Node{Open: func(ctx context.Context) *redis.PubSub { return rdb.Subscribe(ctx) }}, events)
	defer func() { s.Quit(); <-s.Done() }()
	s.Set("x", true)
	for cut := 1; cut <= 20; cut++ {
		<-events.confirmed
		if got := subscribed(); got != strconv.Itoa(cut) {
			t.Fatalf("%d connections were cut, and %s have subscribed; want one more than were cut", cut-1, got)
		}
		expect.OK(t, admin.Publish(ctx, "x", "heard").Err())
		<-events.messages
		expect.OK(t, admin.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	}
}
