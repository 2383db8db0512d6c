package ground

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sema"
	"sema/engines/fileengine"
	"sema/engines/pgengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// someOf is of how many pieces one is hit, where hitting all would only be an outage.
const someOf = 4

// wireFault is something that happens between workers and servers.
type wireFault struct {
	name, note string
	turn       func(t *redistest.Trouble, on bool)
	at         func(*redistest.Proxy) // what happens once, at the beginning
	slow       bool                   // what passes takes longer, or waits for the end
}

// when is a value that there is while a fault is on.
func when[V any](on bool, v V) (is V) {
	if on {
		is = v
	}
	return is
}

var wireFaults = []wireFault{
	{
		"network: silence", "connections stay open, nothing passes; what was sent arrives at the end",
		func(t *redistest.Trouble, on bool) { t.Silent = on }, nil, true,
	},
	{
		"network: refused", "all connections are closed, and new ones at once",
		func(t *redistest.Trouble, on bool) { t.Refuse = on }, (*redistest.Proxy).DropAll, false,
	},
	{
		"network: replies lost", "one in four: the connection is closed in its place, the request is carried out",
		func(t *redistest.Trouble, on bool) { t.LoseReplies = when(on, someOf) }, nil, false,
	},
	{
		"network: requests lost", "one in four: the connection is closed, the request is not carried out",
		func(t *redistest.Trouble, on bool) { t.LoseRequests = when(on, someOf) }, nil, false,
	},
	{
		"network: latency", "200 ms each way, and up to 300 ms more",
		func(t *redistest.Trouble, on bool) {
			t.Latency, t.Jitter = when(on, 200*time.Millisecond), when(on, 300*time.Millisecond)
		}, nil, true,
	},
	{
		"network: slices", "32 bytes at a time",
		func(t *redistest.Trouble, on bool) { t.Slice = when(on, 32) }, nil, true,
	},
	{
		"network: bandwidth", "20 kB a second, each way of each connection",
		func(t *redistest.Trouble, on bool) { t.Rate = when(on, 20_000) }, nil, true,
	},
	{
		"network: late copies", "one request in four reaches the server 2.5 s later, when it was sent again long ago",
		func(t *redistest.Trouble, on bool) { t.Hold, t.HoldFor = when(on, someOf), 2500*time.Millisecond }, nil, true,
	},
	{
		"network: resets", "all connections are reset, and then one piece in twenty resets its own",
		func(t *redistest.Trouble, on bool) { t.Reset = when(on, 20) }, (*redistest.Proxy).ResetAll, false,
	},
}

// halfOpenFault needs bytes that can be read.
var halfOpenFault = wireFault{
	"network: subscriptions half open", "the server's side of those there are is closed, the client hears nothing; new ones are silent",
	func(t *redistest.Trouble, on bool) { t.SilentSubscriptions = on },
	func(p *redistest.Proxy) { p.HalfOpen(redistest.Subscriptions) }, false,
}

// networkFaults are those of the wire between workers and servers. Each hits all
// sites or one; site -1 has the proxies of all. None excuses anything: a client can tell that
// it hears nothing. together: processes wait for each other's round trips, so that one site's slow way is all sites'.
func networkFaults(readable, together bool, proxies func(site int) []*redistest.Proxy) (faults []Fault) {
	list := slices.Clone(wireFaults)
	if readable {
		list = append(list, halfOpenFault)
	}
	for _, w := range list {
		var hit []*redistest.Proxy
		faults = append(faults, Fault{
			Name: w.name, Note: w.note, Spreads: together && w.slow,
			Begin: func(_ context.Context, r *rand.Rand) (Extent, error) {
				site := r.IntN(2*Sites) - Sites
				extent := Extent{}
				if site >= 0 {
					extent.Sites = []int{site}
				}
				hit = proxies(max(-1, site))
				for _, p := range hit {
					p.Change(func(t *redistest.Trouble) { w.turn(t, true) })
					if w.at != nil {
						w.at(p)
					}
				}
				return extent, nil
			},
			End: func(context.Context) error {
				for _, p := range hit {
					p.Change(func(t *redistest.Trouble) { w.turn(t, false) })
				}
				return nil
			},
		})
	}
	return faults
}

// patience is how long an own client waits for a connection or a reply.
const patience = 2 * time.Second

// Place is what a link leads to: an engine, and below it a client of Redis or a pool of PostgreSQL's, or
// none.
type Place struct {
	protocol.Engine
	RDB  redis.UniversalClient
	pool *pgxpool.Pool
}

// Open makes the engine that a link leads to, for such a lease.
func (l Link) Open(lease time.Duration) (*Place, error) {
	if dir, ok := strings.CutPrefix(l.URL, "file://"); ok {
		e, err := fileengine.New(dir, nil)
		return &Place{Engine: e}, err
	}
	if strings.HasPrefix(l.URL, "postgres://") {
		pool, err := pgxpool.New(context.Background(), l.URL)
		if err != nil {
			return nil, fmt.Errorf("ground: link: %w", err)
		}
		e, err := pgengine.New(pool, &pgengine.Options{Poll: l.Poll})
		return &Place{Engine: e, pool: pool}, err
	}
	// As the program has them (cmd/sema/internal/cli).
	o, err := l.options(max(min(3*time.Second, lease/6), 50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	o.MaxRetries = 1
	rdb := redis.NewUniversalClient(o)
	e, err := redisengine.New(rdb, &redisengine.Options{Replicas: l.Replicas})
	return &Place{Engine: e, RDB: rdb}, err
}

// Close closes the engine and what it was given.
func (p *Place) Close() error {
	err := p.Engine.Close()
	if p.RDB != nil {
		err = cmp.Or(err, p.RDB.Close())
	}
	if p.pool != nil {
		p.pool.Close()
	}
	return err
}

// step acquires and releases, as somebody who comes new.
func (l Link) step(ctx context.Context, name string) (err error) {
	at, err := l.Open(time.Minute)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	s, err := sema.New(at, name, 1, &sema.Options{Lease: time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	p, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return p.Release()
}

// Redis makes a client for the ground itself, to the servers behind a link. The
// client repeats nothing, so its errors show the faults. The caller closes it. For
// a link to files it returns an error.
func (l Link) Redis() (redis.UniversalClient, error) {
	o, err := l.options(patience)
	if err != nil {
		return nil, err
	}
	o.MaxRetries = -1
	o.MaxRedirects = 1 // of a cluster, which are retries as well
	return redis.NewUniversalClient(o), nil
}

// options are those of a client for the servers behind a link, with a dialler that
// knows the proxies. A connection, and a reply, are waited for that long.
func (l Link) options(patience time.Duration) (*redis.UniversalOptions, error) {
	u, err := url.Parse(l.URL)
	if err != nil {
		return nil, fmt.Errorf("ground: link: %w", err)
	}
	o := &redis.UniversalOptions{
		Addrs: strings.Split(u.Host, ","), Username: u.User.Username(),
		ContextTimeoutEnabled: true, DialerRetries: 1,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	o.Password, _ = u.User.Password()
	switch u.Scheme {
	case "redis", "rediss":
	case "redis+sentinel":
		o.MasterName = strings.TrimPrefix(u.Path, "/")
	case "redis+cluster":
		o.IsClusterMode = true
	default:
		return nil, fmt.Errorf("ground: no Redis at %s", l.URL)
	}
	if l.CA != "" {
		pem, err := os.ReadFile(l.CA)
		if err != nil {
			return nil, fmt.Errorf("ground: link: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ground: link: no certificate in %s", l.CA)
		}
		o.TLSConfig = &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	o.Dialer = l.dialer(patience, o.TLSConfig)
	return o, nil
}

// dialer dials what Via says in place of a server's own address.
func (l Link) dialer(patience time.Duration, secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if via, ok := l.Via[addr]; ok {
			addr = via
		}
		d := &net.Dialer{Timeout: patience}
		if secure != nil {
			return (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, network, addr)
		}
		return d.DialContext(ctx, network, addr)
	}
}
