package redisson

import (
	"context"
	"slices"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The network decides in which order copies of a request and its undoing arrive.
// This test makes each order happen.
func TestReceipts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := context.Background()
	counterKeys := []string{"s", "redisson_sc:{s}", "{s}:receipts:h"}
	expirableKeys := []string{"e", "redisson_sc:{e}", "{e}:timeout", "{e}:receipts:h"}
	kinds := []struct {
		name          string
		keys          []string
		acquire, undo *script
		args          []any
	}{
		{"counter", counterKeys, counterAcquire, counterUndo, []any{2}},
		{"expirable", expirableKeys, expirableAcquire, expirableUndo, []any{-1, "id-of-16-bytes-1", "id-of-16-bytes-2"}},
	}
	for _, k := range kinds {
		send := func(s *script, number int, mode string) []int64 {
			t.Helper()
			argv := append([]any{"publish", "0", number, mode}, k.args...)
			answer, err := evaluate(ctx, rdb, s, k.keys, argv)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			return answer
		}
		left := func(what string, want int) {
			t.Helper()
			if n, err := rdb.Get(ctx, k.keys[0]).Int(); err != nil || n != want {
				t.Fatalf("%s: %s: %d permits left, %v; want %d", k.name, what, n, err, want)
			}
		}
		expect.OK(t, rdb.Set(ctx, k.keys[0], 5, 0).Err())

		first := send(k.acquire, 1, "first")
		if again := send(k.acquire, 1, "again"); !slices.Equal(first, again) {
			t.Fatalf("%s: second copy answers %v; want %v", k.name, again, first)
		}
		left("two copies", 3)
		send(k.undo, 1, "first")
		send(k.undo, 1, "again")
		left("undone twice", 5)
		send(k.acquire, 1, "first")
		left("a copy after that", 5)

		send(k.undo, 2, "first")
		send(k.acquire, 2, "first")
		left("a request that came after it was undone", 5)

		send(k.acquire, 4, "first")
		if late := send(k.acquire, 3, "first"); len(late) != 0 {
			t.Fatalf("%s: an overtaken request got %v", k.name, late)
		}
		send(k.undo, 3, "again")
		left("an overtaken request and its end", 3)
		send(k.undo, 4, "first")
		left("all undone", 5)

		// A refusal must be remembered as well if a first copy may still come.
		expect.OK(t, rdb.Set(ctx, k.keys[0], 1, 0).Err())
		send(k.acquire, 5, "again")
		expect.OK(t, rdb.Set(ctx, k.keys[0], 5, 0).Err())
		send(k.acquire, 5, "first")
		left("a first copy that came after its caller was refused", 5)
	}
}
