// Package historydb keeps a history in a file, for longer than memory goes and
// beyond the end of the process.
package historydb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"sema/internal/history"
)

// DB is the file. Open it, and close it after the History that it is the Store of.
type DB struct {
	db   *bbolt.DB
	keep time.Duration
}

// lockTime is how long Open waits for another process to close the file.
const lockTime = 3 * time.Second

// ErrInUse says that another process has the file open.
var ErrInUse = errors.New("historydb: the file is in use by another process")

// Open opens a file, or makes one that only this user can read. Blocks older than keep
// are removed from it; their room is used again, and the file does not shrink. It fails
// with ErrInUse, or if the file cannot be written or is no history.
func Open(path string, keep time.Duration) (*DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTime})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, path)
	}
	if err != nil {
		return nil, fmt.Errorf("historydb: %s: %w", path, err)
	}
	return &DB{db, keep}, nil
}

// Close closes the file.
func (d *DB) Close() error { return d.db.Close() }

// A bucket for each semaphore has its blocks, by when they begin.
func key(t time.Time) []byte { return binary.BigEndian.AppendUint64(nil, uint64(t.UnixNano())) }

func begin(key []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(key))).UTC() }

// Put implements history.Store: all blocks are kept, or none.
func (d *DB) Put(blocks []history.Block) error {
	err := d.db.Update(func(tx *bbolt.Tx) error {
		for _, b := range blocks {
			bucket, err := tx.CreateBucketIfNotExists([]byte(b.Name))
			if err != nil {
				return err
			}
			if err := bucket.Put(key(b.From), b.Data); err != nil {
				return err
			}
		}
		return forget(tx, time.Now().Add(-d.keep))
	})
	if err != nil {
		return fmt.Errorf("historydb: %w", err)
	}
	return nil
}

// forget removes blocks that began before then, and semaphores that have no others.
func forget(tx *bbolt.Tx, before time.Time) error {
	var empty [][]byte
	err := tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
		c := bucket.Cursor()
		for k, _ := c.First(); k != nil && begin(k).Before(before); k, _ = c.First() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		if k, _ := c.First(); k == nil {
			empty = append(empty, name)
		}
		return nil
	})
	for _, name := range empty {
		err = errors.Join(err, tx.DeleteBucket(name))
	}
	return err
}

// Get implements history.Store.
func (d *DB) Get(name string, from, before time.Time) ([]history.Block, error) {
	var list []history.Block
	err := d.db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(name))
		if bucket == nil {
			return nil
		}
		c := bucket.Cursor()
		for k, v := c.Seek(key(from)); k != nil && begin(k).Before(before); k, v = c.Next() {
			list = append(list, history.Block{Name: name, From: begin(k), Data: append([]byte(nil), v...)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("historydb: %w", err)
	}
	return list, nil
}
