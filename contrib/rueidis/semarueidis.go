// Package semarueidis has sema's Redis engine send what it sends through the
// rueidis client of a program, over the connections that are there.
//
//	client, err := rueidis.NewClient(option)
//	rdb, err := semarueidis.New(client, option)
//	engine, err := redisengine.New(rdb, nil)
//	sem, err := sema.New(engine, "github-api", 5, nil)
//
// It is a module of its own, so that only those have rueidis among their modules
// who use it. README.md says what it costs, and what it saves.
package semarueidis

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"

	"sema"
)

// New makes a go-redis client for redisengine.New, and for nothing else. option
// is what client was made with. Both clients stay the caller's to close: after
// the engine, the one of go-redis first.
//
// The engine's steps and its reads of a semaphore go through client: to its one
// server, to the nodes of its cluster, or to the master that it knows from
// Sentinel. For the rest, go-redis makes connections as option says. There is
// one for notifications while somebody waits (one for each node of a cluster).
// Listing semaphores, reading the map of a cluster, and
// redisengine.Options.Replicas need further ones. AuthCredentialsFn gives their
// names and passwords; it is called with the first address of option.
//
// A nil client, one that only reads, and an option without an address are a
// *sema.ArgumentError.
func New(client rueidis.Client, option rueidis.ClientOption) (redis.UniversalClient, error) {
	if client == nil {
		return nil, &sema.ArgumentError{What: "rueidis client", Value: nil, Want: "a client for one server, Sentinel or a cluster"}
	}
	if len(option.InitAddress) == 0 {
		return nil, &sema.ArgumentError{What: "InitAddress of the rueidis client", Value: option.InitAddress, Want: "the option that the client was made with"}
	}
	if option.ReplicaOnly {
		return nil, &sema.ArgumentError{What: "ReplicaOnly of the rueidis client", Value: true, Want: "a client that may write"}
	}
	// ContextTimeoutEnabled stays off. rueidis ignores a context while it waits for a
	// connection that another caller is making, and with it off the engine leaves
	// such a call behind.
	o := redis.UniversalOptions{
		Addrs: option.InitAddress, DB: option.SelectDB, ClientName: option.ClientName,
		Username: option.Username, Password: option.Password,
		Dialer:                   func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, &option, addr) },
		DialTimeout:              option.Dialer.Timeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if ask := option.AuthCredentialsFn; ask != nil {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			c, err := ask(rueidis.AuthCredentialsContext{Address: address(option.InitAddress[0])})
			return c.Username, c.Password, err
		}
	}
	var rdb redis.UniversalClient
	if client.Mode() == rueidis.ClientModeCluster {
		rdb = redis.NewClusterClient(o.Cluster())
	} else {
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, &option, master(ctx, client))
		}
		rdb = redis.NewClient(o.Simple())
	}
	rdb.AddHook(through{client})
	return rdb, nil
}

// master is the address of the server that client writes to.
func master(ctx context.Context, client rueidis.Client) (addr string) {
	nodes := client.Nodes()
	for addr = range nodes {
		if len(nodes) == 1 {
			break
		}
		role, _ := nodes[addr].Do(ctx, client.B().Role().Build()).ToArray()
		if len(role) > 0 {
			if word, _ := role[0].ToString(); word == "master" {
				break
			}
		}
	}
	return addr
}

// dial connects as rueidis does.
func dial(ctx context.Context, o *rueidis.ClientOption, addr string) (net.Conn, error) {
	switch {
	case o.DialCtxFn != nil:
		return o.DialCtxFn(ctx, addr, &o.Dialer, o.TLSConfig)
	case o.DialFn != nil:
		return o.DialFn(addr, &o.Dialer, o.TLSConfig)
	case o.TLSConfig != nil:
		return (&tls.Dialer{NetDialer: &o.Dialer, Config: o.TLSConfig}).DialContext(ctx, "tcp", addr)
	}
	return o.Dialer.DialContext(ctx, "tcp", addr)
}

// address is that of a server, as net.Addr.
type address string

// Network implements net.Addr.
func (address) Network() string { return "tcp" }

// String implements net.Addr.
func (a address) String() string { return string(a) }
