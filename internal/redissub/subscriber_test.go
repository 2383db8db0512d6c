package redissub_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/redissub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Settled(m)) }

// listening is what a subscriber says of its channels.
type listening struct{ confirmed, messages, ended chan string }

func (l listening) Confirmed(_ *redissub.Subscriber, channel string) { l.confirmed <- channel }
func (l listening) Message(_, payload string)                        { l.messages <- payload }
func (l listening) Refused(*redissub.Subscriber, error)              {}
func (l listening) Ended(_ *redissub.Subscriber, channel string)     { l.ended <- channel }

func newListening() listening {
	return listening{make(chan string, 100), make(chan string, 100), make(chan string, 100)}
}

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
	events := newListening()
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

// A slot moves while there is no connection to its node, which so can tell nobody. The
// node refuses the subscription on the next connection, without a word of which it means.
func TestTheSlotMovesWhileTheConnectionIsMade(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	ctx := expect.Within(t)
	const channel = "{x}inbox"
	slot := c.Nodes[0].Client().ClusterKeySlot(ctx, channel).Val()
	from := slices.IndexFunc(c.Nodes, func(node *redistest.Server) bool {
		return node.Client().SPublish(ctx, channel, "").Err() == nil
	})
	gate := make(chan bool, 1) // a dial takes a word out and puts it back
	gate <- true
	rdb := redis.NewClient(&redis.Options{Addr: c.Nodes[from].Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-gate
		gate <- true
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	defer func() { _ = rdb.Close() }()
	events := newListening()
	s := redissub.New(redissub.Node{Sharded: true, Open: func(ctx context.Context) *redis.PubSub { return rdb.SSubscribe(ctx) }}, events)
	defer func() { s.Quit(); <-s.Done() }()
	s.Set(channel, true)
	<-events.confirmed
	<-gate // closed
	expect.OK(t, c.Nodes[from].Client().ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	c.MoveSlot(slot, c.Nodes[from], c.Nodes[(from+1)%3])
	gate <- true
	if got := <-events.ended; got != channel {
		t.Errorf("%q has ended; want %q", got, channel)
	}
}
