package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestArgumentError(t *testing.T) {
	long := strings.Repeat("x", 61)
	for _, c := range []struct {
		err  ArgumentError
		want string
	}{
		{ArgumentError{What: "limit", Value: 0, Want: "1 … 5"}, "sema: limit 0: want 1 … 5"},
		{ArgumentError{"redisson", "lease", 90 * time.Second, "more than 0"}, "redisson: lease 1m30s: want more than 0"},
		{ArgumentError{"classic", "name", "", "a name"}, `classic: name "": want a name`},
		{ArgumentError{"classic", "name", "a\n\xff", "text"}, `classic: name "a\n\xff": want text`},
		{ArgumentError{"classic", "name", long[:60], "text"}, `classic: name "` + long[:60] + `": want text`},
		{ArgumentError{"classic", "name", long, "text"}, `classic: name "` + long[:60] + `"…: want text`},
		// 59 bytes and a character of three bytes: it is dropped whole.
		{ArgumentError{"classic", "name", long[:59] + "名字", "text"}, `classic: name "` + long[:59] + `"…: want text`},
		// Only continuation bytes: no character begins anywhere.
		{ArgumentError{"classic", "name", strings.Repeat("\x80", 61), "text"}, `classic: name "` + strings.Repeat(`\x80`, 56) + `"…: want text`},
		{ArgumentError{"redisson", "client", nil, "a client"}, "redisson: client nil: want a client"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%#v:\n got %s\nwant %s", c.err, got, c.want)
		}
		var found *ArgumentError
		if err := fmt.Errorf("wrapped: %w", &c.err); !errors.As(err, &found) || found.What != c.err.What {
			t.Errorf("%v is not found through wrapping", err)
		}
	}
}
