package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/internal/fixture/history"
	"sema/internal/fixture/local"
	"sema/lab/shares"
)

const processes = 4

// scene is a world that some orders play. What begins before warm, or in the last part of
// the time, is not counted.
type scene struct {
	name            string
	orders          []shares.Order
	limit           int
	caps            sema.Caps
	pools           engine.Pools
	tenants         []shares.Tenant
	warm, time, end time.Duration
}

var scenes = []scene{
	{
		"light", orders, 20, sema.Caps{}, "", append(shares.Light(99, shares.Tenant{Callers: 1, Hold: 100 * time.Millisecond, Idle: time.Second}),
			shares.Tenant{Key: "heavy", Callers: 1000, Hold: 100 * time.Millisecond}),
		10 * time.Second, 45 * time.Second, 10 * time.Second,
	},
	{
		"holds", orders, 20, sema.Caps{}, "", []shares.Tenant{{Key: "long", Callers: 40, Hold: 10 * time.Second}, {Key: "short", Callers: 40, Hold: 100 * time.Millisecond}},
		20 * time.Second, 61 * time.Second, time.Second,
	},
	{
		"levels", []shares.Order{shares.Come, shares.Flat, shares.Shares}, 40, sema.Caps{32, 4}, "",
		slices.Concat(users("big", 1000, shares.Tenant{Callers: 1, Hold: time.Second}), organisations(50, shares.Tenant{Callers: 1, Hold: time.Second, Idle: 6 * time.Second})),
		30 * time.Second, 100 * time.Second, 10 * time.Second,
	},
	{
		"pools", []shares.Order{shares.InTurn, shares.AtOnce}, 1000, sema.Caps{}, there, append([]shares.Tenant{simulations}, others...),
		25 * time.Second, 90 * time.Second, 5 * time.Second,
	},
	{
		"wide", []shares.Order{shares.AtOnce}, 1000, sema.Caps{}, there, append([]shares.Tenant{wide}, others...),
		5 * time.Second, 150 * time.Second, 40 * time.Second,
	},
}

// What jobs of a laboratory take, with enough callers of each kind that some always wait.
const there engine.Pools = "db=20,gpu=8,licence=4"

var (
	simulations = shares.Tenant{Key: "simulation", Callers: 40, Takes: "db=1,gpu=1,licence=1", Hold: 10 * time.Second}
	others      = []shares.Tenant{
		{Key: "training", Callers: 12, Takes: "gpu=1", Hold: 3 * time.Second},
		{Key: "test", Callers: 60, Takes: "db=1", Hold: 85 * time.Millisecond},
	}
	wide = shares.Tenant{Key: "wide", Callers: 1, Takes: "db=8,gpu=8", Hold: time.Second, Idle: 20 * time.Second}
)

var orders = []shares.Order{shares.Come, shares.TwoLevel, shares.Shares}

// users are so many users of an organisation, of one kind.
func users(org string, n int, t shares.Tenant) (all []shares.Tenant) {
	for i := range n {
		t.Key = fmt.Sprint(org, "/u", i)
		all = append(all, t)
	}
	return all
}

// organisations are so many of one kind, with a user each.
func organisations(n int, t shares.Tenant) (all []shares.Tenant) {
	for i := range n {
		all = append(all, users(fmt.Sprint("small-", i), 1, t)...)
	}
	return all
}

// kindOf is what a tenant is counted as.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	kind, _, _ = strings.Cut(kind, "-")
	return kind
}

// results are what a run has measured.
type results struct {
	Redis  string  `json:"redis"`
	Go     string  `json:"go"`
	Rounds []round `json:"rounds"`
}

// round is what tenants met in one scene, under one order.
type round struct {
	Scene string            `json:"scene"`
	Order shares.Order      `json:"order"`
	Kinds map[string]tenant `json:"kinds"` // all light ones are one kind
}

// tenant is what became of the callers of a kind.
type tenant struct {
	Served  int     `json:"served"`
	Rate    float64 `json:"rate,omitempty"` // permits a second
	P50     float64 `json:"p50_ms"`         // of waits
	P99     float64 `json:"p99_ms"`
	Longest float64 `json:"longest_ms"`
	Held    float64 `json:"held"` // permits on average, of all of the kind
}

// play has all orders play all scenes, or one, in turns.
func play(ctx context.Context, rounds int, only string) (results, error) {
	if only != "" && !slices.ContainsFunc(scenes, func(s scene) bool { return s.name == only }) {
		return results{}, fmt.Errorf("there is no scene %q", only)
	}
	server, err := local.Redis(ctx)
	if err != nil {
		return results{}, err
	}
	defer server.Stop()
	r := results{Go: strings.TrimPrefix(runtime.Version(), "go")}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Address})
	info, err := rdb.InfoMap(ctx, "server").Result()
	_ = rdb.Close() // it was asked only
	if err != nil {
		return results{}, err
	}
	r.Redis = info["Server"]["redis_version"]
	for n := range rounds {
		for _, s := range scenes {
			for _, o := range s.orders {
				if only != "" && s.name != only {
					continue
				}
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", n+1, rounds, s.name, o)
				played, err := shares.Play(ctx, "unix://"+server.Address, shares.World{
					Name: fmt.Sprint(s.name, n, o), Order: o, Limit: s.limit, Caps: s.caps, Pools: s.pools, Tenants: s.tenants,
					Processes: processes, Seed: uint64(n), For: s.time,
				})
				if err != nil {
					return results{}, err
				}
				r.Rounds = append(r.Rounds, s.count(o, played))
			}
		}
	}
	return r, nil
}

// count sums up what the processes of a scene wrote down.
func (s scene) count(o shares.Order, played *history.Round) round {
	r := round{Scene: s.name, Order: o, Kinds: map[string]tenant{}}
	waits := map[string][]float64{}
	first := slices.MinFunc(played.Events, func(a, b history.Event) int { return int(a.At - b.At) }).At
	from, to := first+int64(s.warm), first+int64(s.time-s.end)
	add := func(key string, call, until int64) {
		if call >= from && call < to {
			waits[kindOf(key)] = append(waits[kindOf(key)], float64(until-call)/1e6)
		}
	}
	for _, h := range played.Holdings(0) {
		kind := kindOf(h.Key)
		k := r.Kinds[kind]
		k.Held += float64(max(0, min(h.Until, to)-max(h.From, from))) / float64(to-from)
		if h.Call >= from && h.Call < to {
			k.Served++
		}
		if h.From >= from && h.From < to {
			k.Rate += 1 / time.Duration(to-from).Seconds()
		}
		add(h.Key, h.Call, h.From)
		r.Kinds[kind] = k
	}
	got, last := map[[2]int64]bool{}, int64(0)
	for _, e := range played.Events {
		last = max(last, e.At)
		if e.Kind == history.Got {
			got[[2]int64{int64(e.Worker), e.Op}] = true
		}
	}
	for _, e := range played.Events { // who got nothing has waited until the end
		if e.Kind == history.Call && !got[[2]int64{int64(e.Worker), e.Op}] {
			add(e.Key, e.At, last)
		}
	}
	for kind, all := range waits {
		slices.Sort(all)
		k := r.Kinds[kind]
		k.P50, k.P99, k.Longest = all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
		r.Kinds[kind] = k
	}
	return r
}
