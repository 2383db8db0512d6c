//go:build unix

package pgengine_test

import (
	"testing"
	"time"

	"sema/lab/expect"
)

// BenchmarkBesideSlots takes one permit and gives it back, beside what one would write
// by hand: a table of slots with leases, of which one is updated that nobody has. In turns, so that the ratio
// means something: times is how many times as fast sema is.
func BenchmarkBesideSlots(b *testing.B) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"commit=no-disk", nil},
		{"commit=1ms", []string{"-c", "fsync=on", "-c", "commit_delay=1000", "-c", "commit_siblings=0"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := startServer(b, c.args...)
			query(b, s, `CREATE TABLE slots (name text, slot int, owner text, until timestamptz NOT NULL, PRIMARY KEY (name, slot));
				INSERT INTO slots SELECT 'x', g, '', '-infinity' FROM generate_series(1, 10) g`)
			pool := poolAt(b, s.url())
			sem := semAt(b, engineAt(b, s.url(), nil), "a")
			ctx := expect.Within(b)
			hand := func() {
				slot := 0
				expect.OK(b, pool.QueryRow(ctx, `UPDATE slots SET owner = $2, until = now() + '30s' WHERE (name, slot) = (
					SELECT name, slot FROM slots WHERE name = $1 AND until < now() ORDER BY slot LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING slot`, "x", "me").Scan(&slot))
				_, err := pool.Exec(ctx, "UPDATE slots SET owner = '', until = '-infinity' WHERE name = $1 AND slot = $2 AND owner = $3", "x", slot, "me")
				expect.OK(b, err)
			}
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
