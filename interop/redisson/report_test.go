//go:build interop

package interop

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"

	"go.uber.org/goleak"
)

// report collects what was exercised, for the table at the end.
var report = &exercised{counts: map[string]*[2]int{}, methods: map[string]int{}}

type exercised struct {
	mu      sync.Mutex
	header  string
	order   []string
	counts  map[string]*[2]int
	methods map[string]int
}

// side is who acted last; the other one saw the effect.
type side int

const (
	byJava side = iota
	byGo
)

// did counts that the other side saw what one side did.
func (r *exercised) did(what string, by side, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[what] == nil {
		r.counts[what] = new([2]int)
		r.order = append(r.order, what)
	}
	r.counts[what][by] += n
}

func (r *exercised) called(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.methods[method]++
}

func (r *exercised) print() {
	fmt.Println(r.header)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(w, "by Java\tby Go\t what was exercised")
	for _, what := range r.order {
		fmt.Fprintf(w, "%d\t%d\t %s\n", r.counts[what][byJava], r.counts[what][byGo], what)
	}
	fmt.Fprintln(w, "\t\t")
	fmt.Fprintln(w, "calls\t\t methods of Redisson that answered")
	for _, m := range slices.Sorted(maps.Keys(r.methods)) {
		fmt.Fprintf(w, "%d\t\t %s\n", r.methods[m], m)
	}
	_ = w.Flush()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	report.print()
	os.Exit(code)
}
