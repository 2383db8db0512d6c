package cli

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"
)

// rereadEvery is how often files are looked at that may change.
const rereadEvery = 2 * time.Second

// reread has files read again whenever one of them is another, or has changed, until ctx
// ends. While they cannot be used, what was read before stays, and the log says
// so.
func (p *program) reread(ctx context.Context, log *slog.Logger, what string, read func() error, paths ...string) {
	look := func() (list []os.FileInfo) {
		for _, path := range paths {
			info, _ := os.Stat(path) // nil: there is none at the moment
			list = append(list, info)
		}
		return list
	}
	same := func(a, b os.FileInfo) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size() && a.Mode() == b.Mode()
	}
	last := look()
	if read() != nil { // changed since it was first read
		last = make([]os.FileInfo, len(paths))
	}
	ticker := time.NewTicker(rereadEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := look()
		if slices.EqualFunc(last, now, same) {
			continue
		}
		last = now
		if err := read(); err != nil {
			_, try := p.sortError(err)
			log.Error("what was read before stays", "what", what, "error", err, "try", try)
			continue
		}
		log.Info("read again", "what", what)
	}
}
