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
)

// patience is how long an own client waits for a connection or a reply.
const patience = 2 * time.Second

// Redis makes a client for the servers behind a link, as a worker uses it. The
// caller closes it. It fails for a link to files.
func (l Link) Redis() (redis.UniversalClient, error) {
	u, err := url.Parse(l.URL)
	if err != nil {
		return nil, fmt.Errorf("ground: link: %w", err)
	}
	o := &redis.UniversalOptions{
		Addrs:                 strings.Split(u.Host, ","),
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
		MaxRedirects:          1, // of a cluster, which are retries as well
		DialTimeout:           patience,
		ReadTimeout:           patience,
		WriteTimeout:          patience,
		DialerRetries:         1,
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
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
	o.Dialer = l.dialer(o.TLSConfig)
	switch u.Scheme {
	case "redis", "rediss":
		return redis.NewClient(o.Simple()), nil
	case "redis+sentinel":
		o.MasterName = strings.TrimPrefix(u.Path, "/")
		return redis.NewFailoverClient(o.Failover()), nil
	case "redis+cluster":
		return redis.NewClusterClient(o.Cluster()), nil
	}
	return nil, fmt.Errorf("ground: no Redis at %s", l.URL)
}

// dialer dials what Via says in place of a server's own address.
func (l Link) dialer(secure *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
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
