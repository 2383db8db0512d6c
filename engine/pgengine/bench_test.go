//go:build unix

package pgengine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/lab/expect"
)

const slotsTable = `CREATE TABLE slots (name text, slot int, owner text, until timestamptz NOT NULL, PRIMARY KEY (name, slot));
	INSERT INTO slots SELECT 'x' || n, g, '', '-infinity' FROM generate_series(1, 16) g, generate_series(0, 99) n`

// slowCommits has each wait for a disk that takes a millisecond.
var slowCommits = []string{"-c", "fsync=on", "-c", "commit_delay=1000", "-c", "commit_siblings=0"}

// slots takes a slot and gives it back.
func slots(ctx context.Context, pool *pgxpool.Pool, name, owner string) error {
	slot := 0
	for slot == 0 {
		if err := pool.QueryRow(ctx, `UPDATE slots SET owner = $2, until = now() + '30s' WHERE (name, slot) = (
			SELECT name, slot FROM slots WHERE name = $1 AND until < now() ORDER BY slot LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING slot`, name, owner).Scan(&slot); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err // else somebody has a lock on the last one, and is about to let go
		}
	}
	_, err := pool.Exec(ctx, "UPDATE slots SET owner = '', until = '-infinity' WHERE name = $1 AND slot = $2 AND owner = $3", name, slot, owner)
	return err
}

// BenchmarkBesideSlots takes one permit and gives it back, beside what one would write
// by hand: a table of slots with leases, of which one is updated that nobody has. In turns, so that the ratio
// means something: times is how many times as fast sema is.
func BenchmarkBesideSlots(b *testing.B) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"commit=no-disk", nil},
		{"commit=1ms", slowCommits},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := startServer(b, c.args...)
			query(b, s, slotsTable)
			pool := poolAt(b, s.url())
			sem := semAt(b, engineAt(b, s.url(), nil), "a")
			ctx := expect.Within(b)
			hand := func() { expect.OK(b, slots(ctx, pool, "x0", "me")) }
			ours := func() {
				p, err := sem.Acquire(ctx)
				expect.OK(b, err)
				expect.OK(b, p.Release())
			}
			hand()
			ours()
			var took [2]time.Duration
			for b.Loop() {
				for i, f := range []func(){hand, ours} {
					began := time.Now()
					f()
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[0])/float64(took[1]), "times")
			b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "µs/pair")
		})
	}
}

// BenchmarkCrowdBesideSlots is the same with 16 clients, each with an engine and a pool of its own, on one
// name and on a hundred; nobody has to wait for a permit. They take turns of half a second.
func BenchmarkCrowdBesideSlots(b *testing.B) {
	const clients, turn = 16, 500 * time.Millisecond
	for _, names := range []int{1, 100} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			s := startServer(b, slowCommits...)
			query(b, s, slotsTable)
			var pools []*pgxpool.Pool
			var sems [][]*sema.Semaphore
			for range clients {
				pools = append(pools, poolAt(b, s.url()))
				e, mine := engineAt(b, s.url(), nil), []*sema.Semaphore(nil)
				for n := range names {
					sem, err := sema.New(e, fmt.Sprint("x", n), clients, nil)
					expect.OK(b, err)
					b.Cleanup(func() { _ = sem.Close() })
					mine = append(mine, sem)
				}
				sems = append(sems, mine)
			}
			phase := func(pair func(ctx context.Context, i, n int) error) int64 {
				var pairs atomic.Int64
				var all sync.WaitGroup
				for i := range clients {
					all.Go(func() {
						for began, n := time.Now(), i; time.Since(began) < turn; n++ {
							if err := pair(expect.Within(b), i, n%names); err != nil {
								b.Error(err)
								return
							}
							pairs.Add(1)
						}
					})
				}
				all.Wait()
				return pairs.Load()
			}
			var hand, ours int64
			for b.Loop() {
				hand += phase(func(ctx context.Context, i, n int) error {
					return slots(ctx, pools[i], fmt.Sprint("x", n), fmt.Sprint(i))
				})
				ours += phase(func(ctx context.Context, i, n int) error {
					p, err := sems[i][n].Acquire(ctx)
					if err != nil {
						return err
					}
					return p.Release()
				})
			}
			b.ReportMetric(float64(ours)/float64(hand), "times")
		})
	}
}
