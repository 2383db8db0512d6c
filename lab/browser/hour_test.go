package browser

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// job is what some processes of a host do, again and again: they hold permits for some
// time, and come back after a gap. Both times are means.
type job struct {
	name          string
	limit, perKey int
	host, label   string
	key           string
	takes         sema.Pools
	processes     int
	weight        int
	hold, gap     time.Duration
}

// jobs keep the semaphores of a team busy.
var jobs = []job{
	{"github-api", 5, 0, "web-1", "sync-issues", "", "", 3, 1, 2 * time.Minute, 3 * time.Minute},
	{"github-api", 5, 0, "web-2", "sync-pulls", "", "", 4, 1, 2 * time.Minute, 3 * time.Minute},
	{"github-api", 5, 0, "batch-1", "nightly", "", "", 1, 1, 8 * time.Minute, 8 * time.Minute},
	{"github-api", 5, 0, "batch-1", "backfill --since 2019", "", "", 1, 3, 3 * time.Minute, 5 * time.Minute},
	{"llm/gpt-large", 8, 0, "llm-1", "summarise", "", "", 5, 1, 40 * time.Second, 30 * time.Second},
	{"llm/gpt-large", 8, 0, "llm-2", "summarise", "", "", 5, 1, 40 * time.Second, 30 * time.Second},
	{"downloads", 3, 0, "ci-4", "curl -O https://example.org/file", "", "", 4, 1, 30 * time.Second, time.Minute},
	{"reports/month end", 2, 0, "batch-2", "report", "", "", 3, 1, 2 * time.Minute, 2 * time.Minute},
	{"tenants", 6, 2, "web-1", "api", "acme", "", 5, 1, 40 * time.Second, 10 * time.Second},
	{"tenants", 6, 2, "web-2", "api", "beta", "", 4, 1, 30 * time.Second, 20 * time.Second},
	{"tenants", 6, 2, "web-2", "api", "delta", "", 1, 1, 30 * time.Second, 20 * time.Second},
	{"tenants", 6, 2, "web-1", "api", "epsilon", "", 1, 1, 30 * time.Second, 20 * time.Second},
	{"tenants", 6, 2, "batch-1", "cleanup", "", "", 1, 1, time.Minute, time.Minute},
	{"vendor-x.query", 12, 0, "batch-2", "etl", "", "", 11, 1, 10 * time.Minute, time.Minute},
	{"ci/gpu-farm", 15, 0, "worker-1", "simulation", "", "gpu=1,licence=1", 2, 1, 20 * time.Minute, time.Minute},
	{"ci/gpu-farm", 15, 0, "worker-2", "training", "", "gpu=2", 2, 1, 8 * time.Minute, 2 * time.Minute},
	{"ci/gpu-farm", 15, 0, "web-2", "crawl", "", "", 4, 1, time.Minute, time.Minute},
}

// seed makes an hour that ends with something to see on every page: in front of github-api a
// heavy waiter, for which two permits are kept free.
const seed = 17

// orders are what an operator does, by the time since the begin of the hour.
var orders = []struct {
	at     time.Duration
	do     func(context.Context, *sema.Operator) error
	record access.Record
}{
	{time.Minute, func(ctx context.Context, o *sema.Operator) error {
		return o.Set(ctx, sema.Rule{Limit: 3, Share: 300}, "beta")
	}, access.Record{What: "set-key", Name: "tenants", Key: "beta", Cap: 3, Share: 300}},
	{20 * time.Minute, func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, sema.Rule{Limit: 3}) },
		access.Record{What: "limit", Name: "github-api", Limit: 3}},
	{36 * time.Minute, func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, sema.Rule{Limit: 5}) },
		access.Record{What: "limit", Name: "github-api", Limit: 5}},
	{57 * time.Minute, func(ctx context.Context, o *sema.Operator) error { return o.Pause(ctx) },
		access.Record{What: "pause", Name: "reports/month end"}},
	{59 * time.Minute, func(ctx context.Context, o *sema.Operator) error { return o.Set(ctx, sema.Rule{Limit: 8}) },
		access.Record{What: "limit", Name: "vendor-x.query", Limit: 8}},
}

// anHour is a dashboard that has seen an hour of all jobs. It is for a bubble of synctest,
// whose clock it sets. The clock stands still once the server listens.
func anHour(t *testing.T) *site {
	begin := time.Date(2026, time.September, 17, 13, 30, 0, 0, time.UTC)
	time.Sleep(time.Until(begin))
	s := newSiteEvery(t, memengine.New(), dashboard.Options{Allow: operator, Rows: 8}, 5*time.Second)
	ctx, cancel := context.WithCancel(context.Background())
	var working sync.WaitGroup
	t.Cleanup(func() { cancel(); working.Wait() })
	pid := 4000
	for _, j := range jobs {
		for range j.processes {
			pid += 17
			chance := rand.New(rand.NewPCG(seed, uint64(pid)))
			o := &sema.Options{Label: j.label, Caps: sema.Caps{j.perKey}, OnConflict: sema.LimitStored}
			if j.name == "ci/gpu-farm" {
				o.Pools = "gpu=4,licence=1"
			}
			sem, err := sema.New(process{s.engine, j.host, pid}, j.name, j.limit, o)
			expect.OK(t, err)
			working.Go(func() {
				defer func() { _ = sem.Close() }()
				j.work(ctx, sem, chance)
			})
		}
	}
	for _, o := range orders {
		time.Sleep(time.Until(begin.Add(o.at)))
		expect.OK(t, o.do(ctx, s.operator(o.record.Name)))
		o.record.Time, o.record.Who, o.record.Result = time.Now().UTC(), "olga", "done"
		s.dashboard.Acted(o.record)
	}
	time.Sleep(time.Until(begin.Add(time.Hour)))
	s.serve()
	return s
}

// work does a job until ctx ends.
func (j job) work(ctx context.Context, sem *sema.Semaphore, chance *rand.Rand) {
	pause := func(mean time.Duration) {
		select {
		case <-time.After(time.Duration((0.2 + 0.8*chance.ExpFloat64()) * float64(mean))):
		case <-ctx.Done():
		}
	}
	options := []sema.AcquireOption{sema.Weight(j.weight)}
	if j.key != "" {
		options = append(options, sema.For(j.key))
	}
	for pool, n := range j.takes.All() {
		options = append(options, sema.Take(pool, n))
	}
	for {
		pause(j.gap)
		p, err := sem.Acquire(ctx, options...)
		if err != nil {
			return // ctx has ended
		}
		pause(j.hold)
		_ = p.Release() // an operator may have revoked it
	}
}

// process is an engine as a process of another host uses it.
type process struct {
	protocol.Engine
	host string
	pid  int
}

// Open says where the process is.
func (p process) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	who.Host, who.PID = p.host, p.pid
	return p.Engine.Open(name, who, notify)
}
