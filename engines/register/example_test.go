package register_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sema"
	"sema/engines/register"
)

// mapStore is a complete store: rows in a map.
type mapStore struct {
	mu   sync.Mutex
	rows map[string]register.Next
}

func (s *mapStore) Read(_ context.Context, name string) (register.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[name]
	return register.Row{Data: r.Data, Version: r.Version, At: r.At, Now: time.Now().UnixMicro()}, nil
}

func (s *mapStore) Swap(_ context.Context, name string, version int64, n register.Next, from, to int64) (int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMicro()
	if s.rows[name].Version != version || now < from || now > to {
		return 0, false, nil
	}
	s.rows[name] = n
	return now, true, nil
}

func (s *mapStore) Names(context.Context) (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.rows {
		if r.Limit > 0 && r.Until > time.Now().UnixMicro() {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *mapStore) Sweep(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.rows {
		if r.Until <= time.Now().UnixMicro() {
			delete(s.rows, name)
		}
	}
	return nil
}

// An engine over a map. Such a store sends no messages, so waiting processes poll.
func Example() {
	engine, err := register.New(&mapStore{rows: map[string]register.Next{}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	sem, err := sema.New(engine, "printer", 1, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sem.Close()
	permit, err := sem.Acquire(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	names, _ := engine.List(context.Background())
	fmt.Println(names, permit.Release())
	// Output: [printer] <nil>
}
