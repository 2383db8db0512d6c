// Command testrun runs go test in several modules, each package though another
// has failed, and sums up: the packages that failed, the slowest tests, and how
// many tests passed and failed.
//
//	go run ./lab/testrun -race . contrib/grpc
//	go run ./lab/testrun -race -rounds 10 -out flaky.json . contrib/grpc
//
// With -rounds it does so again and again, every other time beside two busy loops
// for each processor, and writes what each test did.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// options are what the flags say.
type options struct {
	modules []string // their directories
	flags   []string // of go test
	rounds  int
	out     string
}

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: testrun [flags] MODULE-DIRECTORY...")
		flag.PrintDefaults()
	}
	race := flag.Bool("race", false, "run with the race detector")
	short := flag.Bool("short", false, "leave out what needs servers, processes or time")
	fresh := flag.Bool("fresh", false, "run each test, also if nothing has changed since it passed")
	timeout := flag.Duration("timeout", 10*time.Minute, "how long a package may take")
	run := flag.String("run", "", "run only the tests that match, as go test has it")
	parallel := flag.Int("p", 0, "how many packages run at once; 0: as go test has it")
	o := options{}
	flag.IntVar(&o.rounds, "rounds", 1, "how often all is run; every other time beside busy loops")
	flag.StringVar(&o.out, "out", "", "write what each test did to this file, as JSON")
	flag.Parse()
	if o.modules = flag.Args(); len(o.modules) == 0 || o.rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	o.flags = []string{"-timeout", timeout.String()}
	for name, on := range map[string]bool{"-race": *race, "-short": *short, "-count=1": *fresh || o.rounds > 1} {
		if on {
			o.flags = append(o.flags, name)
		}
	}
	if *run != "" {
		o.flags = append(o.flags, "-run", *run)
	}
	if *parallel > 0 {
		o.flags = append(o.flags, "-p", fmt.Sprint(*parallel))
	}
	ok, err := runAll(o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// runAll carries out all rounds. It reports whether nothing failed in any.
func runAll(o options, w io.Writer) (ok bool, err error) {
	ok = true
	all := &record{Tests: map[string]*test{}}
	for n := range o.rounds {
		busy := o.rounds > 1 && n%2 == 1
		if o.rounds > 1 {
			fmt.Fprintf(w, "round %d of %d, beside busy loops: %v\n", n+1, o.rounds, busy)
		}
		stop := func() {}
		if busy {
			stop = burn()
		}
		began := time.Now()
		s := newSummary(w)
		s.modules(o.modules, o.flags)
		stop()
		s.print(time.Since(began))
		all.add(s, busy, time.Since(began))
		ok = ok && s.ok()
	}
	if o.rounds > 1 {
		all.print(w)
	}
	if o.out != "" {
		err = all.write(o.out)
	}
	return ok, err
}
