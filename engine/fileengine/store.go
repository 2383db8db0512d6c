package fileengine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"sema"
	"sema/internal/ledger"
)

const (
	// lockShards is how many locks all names share. They are never removed, so
	// nobody can hold a lock on a file that is not there any more.
	lockShards = 16
	// lockRetry is how often a lock that another process holds is tried; a
	// step takes a few hundred microseconds.
	lockRetry = 500 * time.Microsecond
	// lockWait bounds the wait for a lock.
	lockWait = 10 * time.Second
)

// stored is what a semaphore's file contains.
type stored struct {
	Name string `json:"name"`
	ledger.Snapshot
}

// fileName is a semaphore's file: readable, and distinct for every name even
// where file systems take upper and lower case for the same.
func fileName(name string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	sum := sha256.Sum256([]byte(name))
	return readable[:min(len(readable), 60)] + "~" + hex.EncodeToString(sum[:8]) + ".json"
}

func shard(name string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % lockShards)
}

// read returns nil without an error if there is no such file.
func read(path string) (*stored, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is no semaphore
	}
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return &s, nil
}

// write replaces a file so that readers see the old or the new one, whole.
func write(path, process string, s stored) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), "."+process+"-"+fmt.Sprint(shard(s.Name)))
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// lock is a file lock among processes and a mutex within this one: to the
// kernel all goroutines are one owner.
type lock struct {
	mine chan struct{}
	file *flock.Flock
}

func newLock(path string) lock {
	return lock{mine: make(chan struct{}, 1), file: flock.New(path, flock.SetPermissions(0o600))}
}

func (k *lock) take(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	select {
	case k.mine <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("lock %s: %w", k.file.Path(), ctx.Err())
	}
	if _, err := k.file.TryLockContext(ctx, lockRetry); err != nil {
		<-k.mine
		return nil, fmt.Errorf("lock %s: %w", k.file.Path(), err)
	}
	return func() {
		_ = k.file.Unlock()
		<-k.mine
	}, nil
}

func fail(op, name string, err error) error {
	if errors.Is(err, sema.ErrClosed) {
		return &sema.EngineError{Op: op, Name: name, NotExecuted: true, Err: err}
	}
	hint := "see that the directory can be written and its disk is not full"
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &kind) {
		hint = "remove that file: the semaphore starts anew"
	}
	return &sema.EngineError{Op: op, Name: name, NotExecuted: true, Hint: hint, Err: err}
}
