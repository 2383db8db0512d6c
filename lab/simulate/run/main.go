// Command run simulates so many seeds, or for as long as asked; a minute, if neither
// is said.
//
//	go -C lab run ./simulate/run -for 10m
//	go -C lab run ./simulate/run -seed 17 -seeds 1 -trace
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sema/lab/simulate"
)

func main() { os.Exit(run()) }

func run() int {
	first := flag.Uint64("seed", uint64(time.Now().Unix())<<20, "the first seed")
	most := flag.Uint64("seeds", 0, "how many seeds; 0: as many as there is time for")
	long := flag.Duration("for", 0, "how long at the most; 0: as long as the seeds take, or a minute")
	trace := flag.Bool("trace", false, "print the last events of each seed")
	flag.Parse()
	if *most == 0 {
		*most = 1 << 62
		if *long == 0 {
			*long = time.Minute
		}
	}

	began := time.Now()
	var next, events, grants, virtual atomic.Uint64
	var failed atomic.Bool
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for !failed.Load() && (*long == 0 || time.Since(began) < *long) {
				n := next.Add(1) - 1
				if n >= *most {
					next.Add(^uint64(0))
					return
				}
				r := simulate.Run(*first+n, *trace)
				events.Add(uint64(r.Events))
				grants.Add(uint64(r.Grants))
				virtual.Add(uint64(r.Virtual / time.Millisecond))
				if *trace {
					fmt.Println(r.Trace)
				}
				if r.Err != nil && failed.CompareAndSwap(false, true) {
					fmt.Printf("seed %d: %s\n", *first+n, simulate.Replay(*first+n))
				}
			}
		})
	}
	progress := make(chan struct{})
	go func() { all.Wait(); close(progress) }()
	report := func() {
		fmt.Printf("%v: seeds %d … %d, %d events, %d grants, %v of virtual time\n", time.Since(began).Round(time.Second),
			*first, *first+next.Load()-1, events.Load(), grants.Load(), time.Duration(virtual.Load())*time.Millisecond)
	}
	for ticker := time.NewTicker(10 * time.Second); ; {
		select {
		case <-ticker.C:
			report()
		case <-progress:
			ticker.Stop()
			report()
			if failed.Load() {
				return 1
			}
			return 0
		}
	}
}
