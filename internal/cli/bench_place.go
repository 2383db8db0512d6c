package cli

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine/fileengine"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/internal/bench"
)

// memoryURL is the engine in memory, which only sema bench can use: no other
// process reaches it.
const memoryURL = "memory:"

// benchPlace is the engine to be measured.
type benchPlace struct {
	bench.Target
	kind    string // "memory", "file", "redis", "sentinel", "cluster"
	closing func()
}

// benchPlace takes the engine from --url or $SEMA_URL, as engine does.
func (p *program) benchPlace() (*benchPlace, error) {
	raw := p.rawURL()
	if raw == memoryURL {
		e := memengine.New()
		return &benchPlace{
			kind:    "memory",
			Target:  bench.Target{Open: func() (sema.Engine, error) { return keptOpen{e}, nil }},
			closing: func() { _ = e.Close() },
		}, nil
	}
	a := address{kind: "file"}
	if raw != "" {
		var err error
		if a, err = parseAddress(raw); err != nil {
			return nil, err
		}
		p.secrets = a.secrets()
	}
	if a.kind == "file" {
		return &benchPlace{
			kind: a.kind,
			Target: bench.Target{
				Open:    func() (sema.Engine, error) { return openFiles(a.path) },
				Process: p.benchProcess,
			},
			closing: func() {},
		}, nil
	}
	options, err := a.options(defaultLease)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewUniversalClient(options)
	return &benchPlace{
		kind: a.kind,
		Target: bench.Target{
			Open:    func() (sema.Engine, error) { return redisengine.New(rdb), nil },
			Redis:   rdb,
			Process: p.benchProcess,
		},
		closing: func() { _ = rdb.Close() },
	}, nil
}

func openFiles(dir string) (sema.Engine, error) {
	e, err := fileengine.New(dir)
	if err != nil {
		return nil, err // not a nil engine inside an interface
	}
	return e, nil
}

// keptOpen is an engine that outlives those who open it.
type keptOpen struct{ sema.Engine }

// Close implements sema.Engine.
func (keptOpen) Close() error { return nil }

// reach looks whether the engine answers, the way other commands do, and which
// version a server says it is.
func (b *benchPlace) reach(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	engine, err := b.Open()
	if err != nil {
		return "", err
	}
	defer func() { _ = engine.Close() }()
	session, err := engine.Open("sema-bench", sema.Client{}, func(sema.Wake) {})
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	if _, err := session.State(ctx); err != nil || b.Redis == nil {
		return "", err
	}
	return bench.ServerVersion(ctx, b.Redis)
}
