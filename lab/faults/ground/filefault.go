package ground

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"

	"sema/internal/fixture/history"
)

// fileFaults are what can happen to a directory: crashes, cleaners of temporary
// files, users. Records follow one another without a pause, so what harms a log
// is done under its lock, as it would be by a process that dies there.
func (g *files) fileFaults() (faults []Fault) {
	for _, f := range []struct {
		name, note string
		excuses    history.Excuse
		harm       func(*os.File) error
	}{
		{
			"files: half a record", "at the end of a log, as of a process that died while it wrote", history.Excuse{},
			func(f *os.File) error {
				torn := make([]byte, 25)
				_, _ = rand.Read(torn) // never fails
				info, err := f.Stat()
				if err == nil {
					_, err = f.WriteAt(torn, info.Size())
				}
				return err
			},
		},
		{
			"files: log cut", "it loses its last bytes, half of it at most", forgets,
			func(f *os.File) error {
				info, err := f.Stat()
				if err == nil {
					err = f.Truncate(info.Size() - min(200, info.Size()/2))
				}
				return err
			},
		},
		{
			"files: log overwritten", "some bytes in its middle", forgets,
			func(f *os.File) error {
				info, err := f.Stat()
				if err == nil {
					_, err = f.WriteAt([]byte("overwritten"), info.Size()/2)
				}
				return err
			},
		},
		{
			"files: log removed", "", forgets,
			func(f *os.File) error { return os.Remove(f.Name()) },
		},
	} {
		faults = append(faults, Fault{
			Name: f.name, Note: f.note, Excuses: f.excuses,
			Begin: func(ctx context.Context, r *mathrand.Rand) (Extent, error) {
				logs := g.logs()
				if len(logs) == 0 {
					return Extent{}, nil
				}
				return Extent{}, locked(ctx, logs[r.IntN(len(logs))], f.harm)
			},
		})
	}
	var held []*os.File
	return append(faults,
		// A process that waits, and whose pipe is gone, looks after two minutes.
		g.atOnce("files: pipes removed", "those of living processes too, which then seem dead", history.Excuse{Limit: true, Order: true, Sleep: true}, func() error {
			pipes, _ := filepath.Glob(filepath.Join(g.dir, "*.life"))
			return removeAll(pipes)
		}),
		g.atOnce("files: directory removed", "", history.Excuse{Limit: true, Order: true, Sleep: true}, func() (err error) {
			for range 100 { // others put files into it meanwhile
				if err = os.RemoveAll(g.dir); err == nil {
					break
				}
			}
			return err
		}),
		g.atOnce("files: what the dead left", "a pipe without a process, and half a file", history.Excuse{}, func() error {
			name := filepath.Join(g.dir, fmt.Sprintf("fground%x", mathrand.Uint64()))
			return errors.Join(leavePipe(name+".life"), os.WriteFile(name+"-1.tmp", []byte("half"), 0o600))
		}),
		g.atOnce("files: times set back", "all files look unused for an hour, so that others sweep", history.Excuse{}, func() error {
			_, err := g.backdate()
			return err
		}),
		Fault{
			Name: "files: logs locked", Note: "by another program, as of a process that stands still in a step",
			Alone: true,
			Begin: func(ctx context.Context, _ *mathrand.Rand) (Extent, error) {
				for _, path := range g.logs() {
					f, err := lock(ctx, path)
					if err != nil {
						return Extent{}, err
					}
					if f != nil {
						held = append(held, f)
					}
				}
				return Extent{}, nil
			},
			End: func(context.Context) error {
				for _, f := range held {
					_ = f.Close()
				}
				held = nil
				return nil
			},
		})
}

// atOnce is a fault that is over as soon as it has happened.
func (g *files) atOnce(name, note string, e history.Excuse, do func() error) Fault {
	return Fault{
		Name: name, Note: note, Excuses: e,
		Begin: func(context.Context, *mathrand.Rand) (Extent, error) { return Extent{}, do() },
	}
}

func removeAll(paths []string) error {
	var err error
	for _, path := range paths {
		if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
