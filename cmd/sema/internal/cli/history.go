package cli

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"sema/cmd/sema/internal/historydb"
	"sema/internal/history"
	watching "sema/watch"
)

// historyFlags say how long and where sema serve keeps its history.
type historyFlags struct {
	keep time.Duration
	file string
}

const (
	usualHistory    = time.Hour      // kept in memory, beside a file as well
	mostHistory     = 24 * time.Hour // that memory keeps
	mostHistoryFile = 10_000 * time.Hour
)

func (f *historyFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.keep, "history", usualHistory, "how far the dashboard's history goes back, at most 24h without --history-file; 0: no history")
	flags.StringVar(&f.file, "history-file", "", "file for the history, which then outlives the server")
}

func (f *historyFlags) check() error {
	switch {
	case f.keep == 0 && f.file == "":
		return nil
	case f.keep == 0:
		return usage("--history 72h", "--history 0 keeps nothing, and --history-file wants it kept")
	case f.keep < time.Minute:
		return usage("--history 1h", "--history %v: want a minute or more", f.keep)
	case f.keep > mostHistoryFile:
		return usage("--history 72h", "--history %v: want %v or less", f.keep, mostHistoryFile)
	case f.keep > mostHistory && f.file == "":
		return usage("--history-file FILE, which keeps it longer than memory", "--history %v: memory keeps %v at the most", f.keep, mostHistory)
	}
	return nil
}

// open begins a history of w's semaphores. closing ends it.
func (f *historyFlags) open(w *watching.Watcher, log *slog.Logger) (kept *history.History, closing func(), err error) {
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	o := history.Options{Keep: f.keep, Always: f.keep > 0, Log: log}
	closeFile := func() {}
	if f.file != "" {
		db, err := historydb.Open(f.file, f.keep)
		if err != nil {
			return nil, nil, usage("another file", "%v", err)
		}
		closeFile = func() {
			if err := db.Close(); err != nil {
				log.Error("sema: the history's file cannot be closed", "error", err)
			}
		}
		o.Store, o.Keep = db, min(f.keep, usualHistory)
	}
	kept, err = history.New(w, &o)
	if err != nil {
		closeFile()
		return nil, nil, err
	}
	return kept, func() { kept.Close(); closeFile() }, nil
}
