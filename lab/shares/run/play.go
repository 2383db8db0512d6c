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
	tenants         []shares.Tenant
	warm, time, end time.Duration
}

var scenes = []scene{
	{
		"light", orders, 20, sema.Caps{}, append(shares.Light(99, shares.Tenant{Callers: 1, Hold: 100 * time.Millisecond, Idle: time.Second}),
			shares.Tenant{Key: "heavy", Callers: 1000, Hold: 100 * time.Millisecond}),
		10 * time.Second, 45 * time.Second, 10 * time.Second,
	},
	{
		"holds", orders, 20, sema.Caps{}, []shares.Tenant{{Key: "long", Callers: 40, Hold: 10 * time.Second}, {Key: "short", Callers: 40, Hold: 100 * time.Millisecond}},
		20 * time.Second, 61 * time.Second, time.Second,
	},
	{
		"levels", []shares.Order{shares.Come, shares.Flat, shares.Shares}, 40, sema.Caps{32, 4},
		slices.Concat(users("big", 1000, shares.Tenant{Callers: 1, Hold: time.Second}), organisations(50, shares.Tenant{Callers: 1, Hold: time.Second, Idle: 6 * time.Second})),
		30 * time.Second, 100 * time.Second, 10 * time.Second,
	},
}

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
	P50     float64 `json:"p50_ms"` // of waits
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
					Name: fmt.Sprint(s.name, n, o), Order: o, Limit: s.limit, Caps: s.caps, Tenants: s.tenants, Processes: processes, Seed: uint64(n), For: s.time,
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
	for _, h := range played.Holdings(0) {
		kind := kindOf(h.Key)
		k := r.Kinds[kind]
		k.Held += float64(max(0, min(h.Until, to)-max(h.From, from))) / float64(to-from)
		if h.Call >= from && h.Call < to {
			k.Served++
			waits[kind] = append(waits[kind], float64(h.From-h.Call)/1e6)
		}
		r.Kinds[kind] = k
	}
	for kind, all := range waits {
		slices.Sort(all)
		k := r.Kinds[kind]
		k.P50, k.P99, k.Longest = all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
		r.Kinds[kind] = k
	}
	return r
}
