package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sema/engine"
	"sema/engine/fileengine"
	"sema/engine/redisengine"
	"sema/internal/faults/ground"
)

// place is what a link leads to: an engine, and below it a client of Redis, or
// none.
type place struct {
	engine.Engine
	rdb redis.UniversalClient
}

// open makes the engine that a link leads to.
func open(link ground.Link, lease time.Duration) (*place, error) {
	if dir, ok := strings.CutPrefix(link.URL, "file://"); ok {
		e, err := fileengine.New(dir, nil)
		return &place{Engine: e}, err
	}
	o, err := options(link, lease)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewUniversalClient(o)
	e, err := redisengine.New(rdb, &redisengine.Options{Replicas: link.Replicas})
	return &place{Engine: e, rdb: rdb}, err
}

// Close closes the engine and what it was given.
func (p *place) Close() error {
	err := p.Engine.Close()
	if p.rdb != nil {
		err = cmp.Or(err, p.rdb.Close())
	}
	return err
}

// options are those of the program's Redis client (internal/cli), with a dialler
// that knows the proxies.
func options(link ground.Link, lease time.Duration) (*redis.UniversalOptions, error) {
	scheme, rest, _ := strings.Cut(link.URL, "://")
	user := ""
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, rest = rest[:i], rest[i+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	name, password, _ := strings.Cut(user, ":")
	name, err := url.PathUnescape(name)
	if err == nil {
		password, err = url.PathUnescape(password)
	}
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	patience := max(min(3*time.Second, lease/6), 50*time.Millisecond)
	o := &redis.UniversalOptions{
		Addrs: strings.Split(hosts, ","), Username: name, Password: password,
		ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch kind := strings.TrimPrefix(strings.TrimPrefix(scheme, "rediss"), "redis"); kind {
	case "":
	case "+sentinel":
		o.MasterName = path
	case "+cluster":
		o.IsClusterMode = true
	default:
		return nil, fmt.Errorf("faults: unknown kind of URL: %s", scheme)
	}
	if strings.HasPrefix(scheme, "rediss") {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if link.CA != "" {
			pem, err := os.ReadFile(link.CA)
			if err != nil {
				return nil, fmt.Errorf("faults: %w", err)
			}
			o.TLSConfig.RootCAs = x509.NewCertPool()
			o.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
		}
	}
	o.Dialer = dialer(link, patience, o.TLSConfig)
	return o, nil
}

// dialer dials the proxy for a server instead of the server.
func dialer(link ground.Link, patience time.Duration, secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := &net.Dialer{Timeout: patience}
		to := addr
		if proxy, ok := link.Via[addr]; ok {
			to = proxy
		}
		if secure == nil {
			return d.DialContext(ctx, network, to)
		}
		c := secure.Clone()
		c.ServerName, _, _ = net.SplitHostPort(addr)
		return (&tls.Dialer{NetDialer: d, Config: c}).DialContext(ctx, network, to)
	}
}
