package ground

import (
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
)

// patience is how long an own client waits for a connection or a reply.
const patience = 2 * time.Second

// Redis makes a client for the ground itself, to the servers behind a link. The
// client repeats nothing, so its errors show the faults. The caller closes it. For
// a link to files it returns an error.
func (l Link) Redis() (redis.UniversalClient, error) {
	o, err := l.Options(patience)
	if err != nil {
		return nil, err
	}
	o.MaxRetries = -1
	o.MaxRedirects = 1 // of a cluster, which are retries as well
	return redis.NewUniversalClient(o), nil
}

// Options are those of a client for the servers behind a link, with a dialler that
// knows the proxies. A connection, and a reply, are waited for that long.
func (l Link) Options(patience time.Duration) (*redis.UniversalOptions, error) {
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
