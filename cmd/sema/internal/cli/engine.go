package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/engines/fileengine"
	"sema/engines/httpengine"
	"sema/engines/redisengine"
)

// callTime bounds the calls of commands that do not wait for a permit.
const callTime = 10 * time.Second

// defaultLease is how long a permit lives unless renewed.
const defaultLease = 30 * time.Second

// openEngine is an engine, and what is known of the store behind it.
type openEngine struct {
	address
	Engine sema.Engine
	redis  redis.UniversalClient // nil: none
	dir    string                // of files
	pool   *pgxpool.Pool         // nil: none
	pg     postgres              // of pool
	close  func()
}

// rawURL is the URL of the engine, as it was given.
func (p *program) rawURL() string {
	if p.url != "" {
		return p.url
	}
	return p.getenv("SEMA_URL")
}

// readURL takes that URL apart.
func (p *program) readURL() (address, error) {
	raw := p.rawURL()
	if raw == "" {
		return address{kind: "file"}, nil
	}
	a, err := parseAddress(raw)
	p.secrets = a.secrets()
	return a, err
}

// open opens the engine that --url or $SEMA_URL names. Calls to it end early
// enough to be repeated within the lease.
func (p *program) open(lease time.Duration) (*openEngine, error) {
	a, err := p.readURL()
	if err != nil {
		return nil, err
	}
	switch a.kind {
	case "file":
		e, err := fileengine.New(a.path, &fileengine.Options{Shared: a.shared})
		if err != nil {
			return nil, err
		}
		return &openEngine{Engine: e, address: a, dir: e.Dir(), close: func() { _ = e.Close() }}, nil
	case "http":
		return p.openServer(a)
	case "postgres":
		return openPostgres(a)
	}
	options, err := a.options(lease)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewUniversalClient(options)
	open, end := context.WithCancel(context.Background())
	hook := cutSetUp{open, options.DialTimeout + options.ReadTimeout}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
	} else {
		rdb.AddHook(hook)
	}
	e, err := redisengine.New(rdb, &redisengine.Options{Replicas: a.replicas})
	if err != nil {
		end()
		_ = rdb.Close()
		return nil, err
	}
	return &openEngine{Engine: e, address: a, redis: rdb, close: func() { end(); _, _ = e.Close(), rdb.Close() }}, nil
}

// cutSetUp closes each connection that is still being set up when the engine closes. No context
// ends go-redis's wait for the answer to HELLO, and its Close does not know of a subscription's connection before.
type cutSetUp struct {
	open  context.Context // ends when the engine closes
	setUp time.Duration   // is over after that
}

func (h cutSetUp) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err == nil {
			stop := context.AfterFunc(h.open, func() { _ = conn.Close() })
			time.AfterFunc(h.setUp, func() { stop() })
		}
		return conn, err
	}
}

func (cutSetUp) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (cutSetUp) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// openServer opens the engine behind a server.
func (p *program) openServer(a address) (*openEngine, error) {
	token := p.getenv("SEMA_SERVER_TOKEN")
	if _, secret, ok := strings.Cut(token, "."); ok && len(secret) > 1 {
		p.secrets = append(p.secrets, secret)
	}
	e, err := httpengine.New(a.raw, &httpengine.Options{Token: token})
	argument, _ := errors.AsType[*sema.ArgumentError](err)
	switch {
	case argument != nil && argument.What == "token":
		return nil, usage("SEMA_SERVER_TOKEN=NAME.SECRET, as the server's token file has them", "$SEMA_SERVER_TOKEN is no token")
	case err != nil:
		return nil, usage("http://host:7362 or https://host:7362, and $SEMA_SERVER_TOKEN", "the URL %s has something that no server's has", redact(a.raw))
	}
	return &openEngine{Engine: e, address: a, close: func() { _ = e.Close() }}, nil
}

// where is the engine as people know it, without what is secret.
func (at *openEngine) where() string {
	switch {
	case at.raw == "":
		return "this user on this host"
	case at.kind == "file":
		return at.path
	case at.kind == "http":
		u, _ := url.Parse(at.raw) // the engine has read it
		return printable("http "+u.Scheme+"://"+u.Host+u.Path, 100)
	case at.kind == "postgres":
		return printable("postgres "+strings.Join(at.hosts, ",")+"/"+at.path, 100)
	}
	return printable(at.kind+" "+strings.Join(at.hosts, ","), 100)
}

// command is a command to try, on the engine of this one.
func (p *program) command(verb string, args ...string) string {
	return strings.Join(append([]string{"sema " + verb + p.urlFlag()}, args...), " ")
}

// urlFlag repeats the choice of engine in a command we suggest.
func (p *program) urlFlag() string {
	if p.url == "" {
		return ""
	}
	if strings.ContainsAny(p.url, "@?") {
		return " --url " + quote(redact(p.url)) // may hold a password
	}
	return " --url " + quote(p.url)
}

// operate does something to a semaphore, within callTime.
func (p *program) operate(ctx context.Context, verb, name string, do func(context.Context, *sema.Operator) error) error {
	at, err := p.open(defaultLease)
	if err != nil {
		return err
	}
	defer at.close()
	return p.operateAt(ctx, at, verb, name, do)
}

// operateAt is operate on an engine that is open.
func (p *program) operateAt(ctx context.Context, at *openEngine, verb, name string, do func(context.Context, *sema.Operator) error) error {
	err := operate(ctx, at.Engine, verb, name, do)
	switch {
	case errors.Is(err, sema.ErrNotFound):
		return &exit{exitAbsent, usage(p.command("ls"), "there is no semaphore %q: nobody uses it now, and nobody set its limit", name)}
	case errors.Is(err, sema.ErrInUse):
		return &exit{exitConflict, usage(p.command("show", quote(name)), "%q is in use", name)}
	}
	return err
}

func operate(ctx context.Context, e sema.Engine, verb, name string, do func(context.Context, *sema.Operator) error) error {
	o, err := sema.Operate(e, name)
	if err != nil {
		return err
	}
	defer func() { _ = o.Close() }() // the answer is there
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return unreachable(verb, name, do(ctx, o))
}

// look asks the engine about a semaphore that need not exist, within callTime.
func look(ctx context.Context, e sema.Engine, verb, name string) error {
	return operate(ctx, e, verb, name, func(ctx context.Context, o *sema.Operator) error {
		if _, err := o.State(ctx); !errors.Is(err, sema.ErrNotFound) {
			return err
		}
		return nil
	})
}

// state looks at a semaphore; one that does not exist is an error.
func (p *program) state(ctx context.Context, name string) (st sema.State, err error) {
	at, err := p.open(defaultLease)
	if err != nil {
		return st, err
	}
	defer at.close()
	return p.stateAt(ctx, at, name)
}

// stateAt is state on an engine that is open.
func (p *program) stateAt(ctx context.Context, at *openEngine, name string) (st sema.State, err error) {
	err = p.operateAt(ctx, at, "state", name, func(ctx context.Context, o *sema.Operator) (err error) {
		st, err = o.State(ctx)
		return err
	})
	return st, err
}

// unreachable gives a call that ran out of time the same face as one that the
// engine failed.
func unreachable(op, name string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sema.ErrBusy) && !errors.Is(err, sema.ErrEngine) {
		return &engine.Error{Op: op, Name: name, Temporary: true, Hint: "check that the server runs and the address is right", Err: fmt.Errorf("no answer within %v", callTime)}
	}
	return err
}
