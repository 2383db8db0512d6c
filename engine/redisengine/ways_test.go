package redisengine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/measure"
	"sema/internal/redistest"
)

// dedicated carries everything over one connection.
type dedicated struct {
	mu   sync.Mutex
	conn *redis.Conn
}

func (d *dedicated) process(cmd redis.Cmder, most time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	_ = d.conn.Process(ctx, cmd)
}

func (d *dedicated) take() bool                                 { return true }
func (d *dedicated) direct(cmd redis.Cmder, most time.Duration) { d.process(cmd, most) }

// automatic carries by go-redis's automatic pipelining.
type automatic struct{ pipe *redis.AutoPipeliner }

func (a automatic) process(cmd redis.Cmder, most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	_ = a.pipe.Process(ctx, cmd)
}

func (a automatic) take() bool                                 { return true }
func (a automatic) direct(cmd redis.Cmder, most time.Duration) { a.process(cmd, most) }

// BenchmarkWays is how the way that steps go to the server was chosen: the
// same combiner over all ways, in turns; with a few goroutines on one
// semaphore, and with one goroutine on each of many.
func BenchmarkWays(b *testing.B) {
	for _, c := range []struct{ goroutines, names int }{{1, 1}, {64, 1}, {512, 1}, {1000, 1000}} {
		b.Run(fmt.Sprintf("goroutines=%d/names=%d", c.goroutines, c.names), func(b *testing.B) {
			server := redistest.Start(b)
			ways := map[string]func(rdb *redis.Client) carrier{
				"post":       func(rdb *redis.Client) carrier { return carry(rdb) },
				"pool":       func(rdb *redis.Client) carrier { return &pool{rdb: rdb, heeds: true} },
				"connection": func(rdb *redis.Client) carrier { return &dedicated{conn: rdb.Conn()} },
				"autopipeline": func(rdb *redis.Client) carrier {
					pipe, err := rdb.AutoPipelineWithOptions(&redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 80, Unordered: true})
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = pipe.Close() })
					return automatic{pipe}
				},
			}
			var players []measure.Player
			for _, name := range []string{"post", "pool", "connection", "autopipeline"} {
				rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
				e := New(rdb)
				e.carrier = ways[name](rdb)
				b.Cleanup(func() { _ = e.Close(); _ = rdb.Close() })
				all := make([]*sema.Semaphore, c.names)
				for i := range all {
					s, err := sema.New(e, fmt.Sprint(name, i), c.goroutines, nil)
					if err != nil {
						b.Fatal(err)
					}
					b.Cleanup(func() { _ = s.Close() })
					all[i] = s
				}
				gate := measure.Gate{Work: func(ctx context.Context, worker int, held func()) error {
					p, err := all[worker%c.names].Acquire(ctx)
					if err != nil {
						return err
					}
					held()
					return p.Release()
				}}
				players = append(players, measure.Player{Name: name, Play: measure.NewCrew(gate, c.goroutines, 0).Play})
			}
			for b.Loop() {
				plan := measure.Plan{Warmup: 500 * time.Millisecond, Round: time.Second, Rounds: 5, Strict: true}
				series, err := measure.Turns(b.Context(), plan, players, nil)
				if err != nil {
					b.Fatal(err)
				}
				for _, s := range series {
					b.ReportMetric(measure.Case{}.Spread(s, measure.Rate).Median, s.Name+"-pairs/s")
				}
			}
		})
	}
}
