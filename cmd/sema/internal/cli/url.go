package cli

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sema/engines/redisengine"
)

// address is an engine's URL, taken apart by hand: net/url knows neither lists
// of hosts nor how to keep a password out of its errors.
type address struct {
	raw    string
	kind   string // "file", "redis", "sentinel", "cluster", "http", "postgres"
	tls    bool
	user   string // user:password, as written
	hosts  []string
	path   string
	query  string
	shared bool // of files: a group of users
	master string

	replicas int // redisengine.Options.Replicas
}

const tryURL = "redis://host:6379, redis+sentinel://host:26379/master, redis+cluster://host:6379, postgres://host/database, http://host:7362 or file:///dir"

// kinds are the schemes: engine, and whether with TLS.
var kinds = map[string]address{
	"file":            {kind: "file"},
	"redis":           {kind: "redis"},
	"rediss":          {kind: "redis", tls: true},
	"redis+sentinel":  {kind: "sentinel"},
	"rediss+sentinel": {kind: "sentinel", tls: true},
	"redis+cluster":   {kind: "cluster"},
	"rediss+cluster":  {kind: "cluster", tls: true},
	"http":            {kind: "http"},
	"https":           {kind: "http", tls: true},
	"postgres":        {kind: "postgres"},
	"postgresql":      {kind: "postgres"},
}

// defaultPorts are added to hosts without one.
var defaultPorts = map[string]string{"redis": "6379", "sentinel": "26379", "cluster": "6379"}

func parseAddress(raw string) (address, error) {
	wrong := func(what string) error { return usage(tryURL, "%s in the URL %s", what, redact(raw)) }
	scheme, rest, ok := strings.Cut(raw, "://")
	a, known := kinds[strings.ToLower(scheme)]
	if !ok || !known {
		return a, usage(tryURL, "the URL %s is of no known kind", redact(raw))
	}
	a.raw = raw
	if a.kind == "http" { // the engine reads it
		return a, nil
	}
	rest, a.query, _ = strings.Cut(rest, "?")
	// A password may have an unescaped slash or at sign: the last sign counts.
	if i := strings.LastIndex(rest, "@"); i >= 0 && a.kind != "file" {
		a.user, rest = rest[:i], rest[i+1:]
		if strings.Contains(a.user, "/") {
			return a, wrong("a / must be written %2F in user or password")
		}
	}
	authority, path, _ := strings.Cut(rest, "/")
	a.path = path
	if a.kind == "postgres" { // pgx reads it
		a.hosts = []string{authority}
		return a, nil
	}
	if a.kind == "file" {
		return a, a.parseFile(authority, wrong)
	}
	for _, host := range strings.Split(authority, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil { // no port, or nonsense that gets no better with one
			name, port, err = net.SplitHostPort(host + ":" + defaultPorts[a.kind])
		}
		if err != nil || name == "" || port == "" || strings.ContainsAny(name, " %#") {
			return a, wrong("wrong or missing host")
		}
		if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
			return a, wrong("wrong port")
		}
		a.hosts = append(a.hosts, net.JoinHostPort(name, port))
	}
	switch {
	case a.kind == "redis" && len(a.hosts) > 1:
		return a, wrong("several hosts")
	case a.kind == "sentinel":
		if a.master = a.path; a.master == "" || strings.Contains(a.master, "/") {
			return a, wrong("no name of the master")
		}
		a.path = ""
	case a.kind == "cluster" && a.path != "":
		return a, wrong("a database or path")
	}
	return a, nil
}

func (a *address) parseFile(authority string, wrong func(string) error) error {
	path, err := url.PathUnescape("/" + a.path)
	if err != nil || authority != "" || a.path == "" {
		return wrong("no absolute path")
	}
	if a.shared = a.query == "shared"; a.query != "" && !a.shared {
		return wrong("a query other than ?shared")
	}
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, "/") // file:///C:/dir
	}
	a.path = filepath.FromSlash(path)
	return nil
}

// options are the Redis client's options. Calls end early enough to be
// repeated several times within a lease.
func (a *address) options(lease time.Duration) (*redis.UniversalOptions, error) {
	query, err := url.ParseQuery(a.query)
	if err != nil {
		return nil, usage(tryURL, "the URL %s has a query that is none", redact(a.raw))
	}
	o := &redis.UniversalOptions{
		Addrs: a.hosts, MasterName: a.master, IsClusterMode: a.kind == "cluster",
		SentinelUsername: query.Get("sentinel_username"), SentinelPassword: query.Get("sentinel_password"),
		ContextTimeoutEnabled: true,
		// A managed service's announcements of its maintenance: what they tell,
		// the engine's own patience covers.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	if text := query.Get("replicas"); query.Has("replicas") {
		if a.replicas, err = strconv.Atoi(text); err != nil || a.replicas < 0 || a.replicas > redisengine.MaxReplicas {
			return nil, usage(fmt.Sprintf("?replicas=1, at most %d", redisengine.MaxReplicas), "the URL %s asks for a number of replicas that is none", redact(a.raw))
		}
		query.Del("replicas")
	}
	// The Redis client's own reader for all else, on one of the hosts.
	one := "redis://"
	if a.tls {
		one = "rediss://"
	}
	if a.user != "" {
		one += a.user + "@"
	}
	parsed, err := redis.ParseURL(one + a.hosts[0] + "/" + a.path + "?" + query.Encode())
	if err != nil {
		// Its text may quote the password, so it is not passed on.
		return nil, usage(tryURL, "user, password, database or options of the URL %s cannot be understood", redact(a.raw))
	}
	if a.kind == "cluster" && parsed.DB != 0 {
		return nil, usage(tryURL, "a cluster has no databases, in the URL %s", redact(a.raw))
	}
	o.Username, o.Password, o.DB = parsed.Username, parsed.Password, parsed.DB
	o.ClientName, o.Protocol = parsed.ClientName, parsed.Protocol
	o.MaxRetries, o.PoolSize = parsed.MaxRetries, parsed.PoolSize
	if o.MaxRetries == 0 {
		o.MaxRetries = 1 // the engine tries again itself, where that helps
	}
	o.DialerRetries = 1
	patience := max(min(3*time.Second, lease/6), 50*time.Millisecond)
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = patience, patience, patience
	if parsed.DialTimeout != 0 {
		o.DialTimeout = parsed.DialTimeout
	}
	if parsed.ReadTimeout != 0 {
		o.ReadTimeout, o.WriteTimeout = parsed.ReadTimeout, parsed.ReadTimeout
	}
	if parsed.TLSConfig != nil {
		// Without a server name: each host is checked under its own.
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: parsed.TLSConfig.InsecureSkipVerify} //nolint:gosec // as the user asks: ?skip_verify=true
	}
	return o, nil
}

// secrets are what must not be printed.
func (a *address) secrets() []string {
	var list []string
	_, password, _ := strings.Cut(a.user, ":")
	query, _ := url.ParseQuery(a.query)
	for _, s := range []string{password, query.Get("sentinel_password"), query.Get("password"), query.Get("sslpassword")} {
		if len(s) < 2 {
			continue // would blot out half of any text
		}
		list = append(list, s)
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			list = append(list, plain)
		}
	}
	return list
}

// redact returns the part of a URL that may be printed; raw may also be a
// mistyped URL. No rule finds a password in a wrong place. So of a URL that can
// contain one, only the scheme is shown.
func redact(raw string) string {
	scheme, _, ok := strings.Cut(raw, "://")
	if strings.EqualFold(scheme, "file") || !ok && !strings.Contains(raw, "@") {
		return printable(raw, 100)
	}
	if !ok {
		return "…"
	}
	return printable(scheme, 30) + "://…"
}
