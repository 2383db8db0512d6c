package historydb_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/cmd/sema/internal/historydb"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/history"
	"sema/watch"
)

// record keeps a history in the file for a while in virtual time.
func record(t *testing.T, file string, keep, during time.Duration, e sema.Engine, ask func(*history.History)) {
	t.Helper()
	w, err := watch.New(e, nil)
	expect.OK(t, err)
	db, err := historydb.Open(file, keep)
	expect.OK(t, err)
	h, err := history.New(w, &history.Options{Always: true, Keep: 10 * time.Minute, Store: db})
	expect.OK(t, err)
	time.Sleep(during)
	if ask != nil {
		ask(h)
	}
	h.Close()
	w.Close()
	expect.OK(t, db.Close())
}

// The file has the part that memory has forgotten, that of an earlier process too, until
// it is too old.
func TestAHistoryOutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "history")
		begin := time.Now()
		e := memengine.New()
		defer func() { expect.OK(t, e.Close()) }()
		sem, err := sema.New(e, "x", 3, &sema.Options{Label: "nightly"})
		expect.OK(t, err)
		defer func() { _ = sem.Close() }()
		o, err := sema.Operate(e, "x")
		expect.OK(t, err)
		defer func() { _ = o.Close() }()
		expect.OK(t, o.Set(t.Context(), sema.Rule{Limit: 3})) // it stays when it is idle
		p, err := sem.Acquire(context.Background(), sema.Weight(2))
		expect.OK(t, err)
		record(t, file, 24*time.Hour, 30*time.Minute, e, nil)
		record(t, file, 24*time.Hour, 32*time.Minute, e, func(h *history.History) {
			if visits, _ := h.Visits("x", begin, time.Now()); len(visits) != 1 || visits[0].End != history.Here {
				t.Errorf("one holder is %+v", visits)
			}
		})
		expect.OK(t, p.Release())
		info, err := os.Stat(file)
		expect.OK(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others can read it: %v", info.Mode())
		}
		record(t, file, 24*time.Hour, 2*time.Hour, e, func(h *history.History) {
			points, err := h.Series("x", begin, time.Now(), time.Minute)
			expect.OK(t, err)
			if len(points) < 182 {
				t.Errorf("%d points of three hours", len(points))
			}
			for _, p := range points {
				want := 2
				if p.From.Sub(begin) >= 62*time.Minute {
					want = 0
				}
				if p.Used != want || p.Limit != 3 {
					t.Errorf("%v: %+v", p.From.Sub(begin), p)
				}
			}
			visits, err := h.Visits("x", begin, begin.Add(time.Hour))
			expect.OK(t, err)
			if len(visits) != 1 || visits[0].Client.Label != "nightly" || !visits[0].Granted.Equal(begin) || visits[0].End != history.Unseen {
				t.Errorf("%+v", visits)
			}
			visits, err = h.Visits("x", begin.Add(70*time.Minute), time.Now())
			expect.OK(t, err)
			if len(visits) != 0 {
				t.Errorf("%+v", visits)
			}
		})
		time.Sleep(23 * time.Hour)
		record(t, file, 24*time.Hour, time.Hour, e, func(h *history.History) {
			points, err := h.Series("x", begin, time.Now(), time.Hour)
			expect.OK(t, err)
			if len(points) == 0 || points[0].From.Sub(begin) < 90*time.Minute {
				t.Errorf("%d points from %v on", len(points), points[0].From.Sub(begin))
			}
		})
	})
}

func TestAFileThatIsNoHistory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "history")
	expect.OK(t, os.WriteFile(file, []byte("this is something else, and longer than nothing"), 0o600))
	for _, path := range []string{file, dir, filepath.Join(dir, "none", "history")} {
		if db, err := historydb.Open(path, time.Hour); err == nil || db != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAFileThatIsInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	db, err := historydb.Open(file, time.Hour)
	expect.OK(t, err)
	if _, err := historydb.Open(file, time.Hour); !errors.Is(err, historydb.ErrInUse) {
		t.Errorf("%v", err)
	}
	expect.OK(t, db.Close())
}
