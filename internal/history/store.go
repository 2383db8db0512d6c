package history

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sema/access"
)

// Block has sixty steps of a semaphore's history, for a Store.
type Block struct {
	Name string
	From time.Time
	Data []byte // JSON, compressed
}

// Store keeps data longer than memory does. It is safe for concurrent use.
type Store interface {
	// Put stores blocks. They replace blocks with the same name and time.
	Put(blocks []Block) error

	// Get returns the blocks of a semaphore that begin at from or later, and before
	// before, the oldest first.
	Get(name string, from, before time.Time) ([]Block, error)
}

// stored is the JSON of a block.
type stored struct {
	Step    time.Duration   `json:"step"`
	Rows    []row           `json:"rows"`
	Visits  []Visit         `json:"visits,omitempty"`
	Changes []access.Record `json:"changes,omitempty"`
}

func (b *block) pack(name string, step time.Duration) (Block, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if err := json.NewEncoder(z).Encode(stored{step, b.rows, b.visits, b.changes}); err != nil {
		return Block{}, err
	}
	err := z.Close()
	return Block{name, b.from, out.Bytes()}, err
}

// unpack decodes a block. ok is false if its steps have another length.
func (b Block) unpack(step time.Duration) (unpacked *block, ok bool, err error) {
	var s stored
	z, err := gzip.NewReader(bytes.NewReader(b.Data))
	if err == nil {
		err = json.NewDecoder(z).Decode(&s)
	}
	if err != nil {
		return nil, false, fmt.Errorf("history: block of %q at %v: %w", b.Name, b.From.UTC(), err)
	}
	return &block{from: b.From, rows: s.Rows, visits: s.Visits, changes: s.Changes, stored: true}, s.Step == step, nil
}

// load returns the Store's blocks of a semaphore, from the block that contains from on.
func (h *History) load(name string, from, before time.Time) ([]block, error) {
	found, err := h.options.Store.Get(name, from.Truncate(blockSteps*h.options.Step), before)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var list []block
	for _, one := range found {
		b, ok, err := one.unpack(h.options.Step)
		if err != nil {
			return list, err
		}
		if ok {
			list = append(list, *b)
		}
	}
	return list, nil
}

// store passes the changed blocks to the Store.
func (h *History) store() {
	if h.options.Store == nil {
		return
	}
	type piece struct {
		name string
		b    *block
		copy block
	}
	var pieces []piece
	h.mu.Lock()
	for name, s := range h.semaphores {
		for i, b := range s.blocks {
			if b.stored {
				continue
			}
			p := piece{name, b, b.clone()}
			b.stored = true
			if i == len(s.blocks)-1 { // the process may end before the current visits do
				for _, v := range s.here {
					gone := *v
					gone.Gone, gone.End = s.looked, Unseen
					p.copy.visits = append(p.copy.visits, gone)
				}
			}
			pieces = append(pieces, p)
		}
	}
	h.mu.Unlock()
	blocks := make([]Block, 0, len(pieces))
	var err error
	for i := range pieces {
		p := &pieces[i]
		if p.copy.from.Before(h.began) { // an earlier process may have begun the block
			if err = h.prependStored(p.name, &p.copy); err != nil {
				break
			}
		}
		var packed Block
		if packed, err = p.copy.pack(p.name, h.options.Step); err != nil {
			break
		}
		blocks = append(blocks, packed)
	}
	if err == nil && len(blocks) > 0 {
		err = h.options.Store.Put(blocks)
	}
	if err == nil {
		return
	}
	h.options.Log.Error("sema: the history cannot be stored", "error", err)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range pieces {
		p.b.stored = false
	}
}

// prependStored inserts the Store's data of a block before the data in memory.
func (h *History) prependStored(name string, b *block) error {
	old, err := h.load(name, b.from, b.from.Add(1))
	if err != nil || len(old) == 0 {
		return err
	}
	own := func(t time.Time) bool { return !t.Before(h.began) }
	var rows []row
	for _, r := range old[0].rows {
		if len(b.rows) > 0 {
			r.N = min(r.N, max(b.rows[0].At, r.At)-r.At) // later steps are from this process
		}
		if r.N > 0 {
			rows = append(rows, r)
		}
	}
	b.rows = append(rows, b.rows...)
	b.visits = append(slices.DeleteFunc(old[0].visits, func(v Visit) bool { return own(v.Gone) }), b.visits...)
	b.changes = append(slices.DeleteFunc(old[0].changes, func(c access.Record) bool { return own(c.Time) }), b.changes...)
	return nil
}
