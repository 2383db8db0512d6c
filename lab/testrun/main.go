// Command testrun runs go test in several modules, each package though another
// has failed, and sums up: the packages that failed, the slowest tests, and how
// many tests passed and failed.
//
//	bin/lab-testrun -race . contrib/grpc
//	bin/lab-testrun -race -rounds 10 -out flaky.json . contrib/grpc
//	bin/lab-testrun -packages './internal/...' -skip PgBouncer -least 300 .
//
// With -rounds it does so again and again, every other time beside two busy loops
// for each processor, and writes what each test did. With -least it also fails if
// fewer tests passed: a run that is green because it ran nothing is not green.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// options are what the flags say.
type options struct {
	modules  []string // their directories
	plain    []string // those of them that are run without the race detector
	flags    []string // of go test
	packages []string // of each module
	without  []string // folders of packages that are left out
	left     string   // said at the end: what is not run here, and why
	least    int      // how many tests have to pass
	rounds   int
	out      string
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
	skip := flag.String("skip", "", "leave out the tests that match, as go test has it")
	plain := flag.String("plain", "", "directories of modules to run without the race detector, with blanks between")
	vet := flag.String("vet", "", "what go test has vet look for; off for nothing")
	without := flag.String("without", "", "folders of packages to leave out, with blanks between")
	packages := flag.String("packages", "./...", "the packages of each module, with blanks between")
	parallel := flag.Int("p", 0, "how many packages run at once; 0: as go test has it")
	o := options{}
	flag.StringVar(&o.left, "left", "", "say at the end that this is not run here, and why")
	flag.IntVar(&o.least, "least", 0, "fail unless so many tests pass")
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
	if *skip != "" {
		o.flags = append(o.flags, "-skip", *skip)
	}
	if *vet != "" {
		o.flags = append(o.flags, "-vet", *vet)
	}
	o.without = strings.Fields(*without)
	o.plain, o.packages = strings.Fields(*plain), strings.Fields(*packages)
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
		s.modules(o)
		stop()
		s.print(time.Since(began), o.left, o.least)
		all.add(s, busy, time.Since(began))
		ok = ok && s.ok() && s.passed() >= o.least
	}
	if o.rounds > 1 {
		all.print(w)
	}
	if o.out != "" {
		err = all.write(o.out)
	}
	return ok, err
}
