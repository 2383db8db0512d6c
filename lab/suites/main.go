// Command suites runs the tests that need a Redis on several servers, each
// fetched by scripts/fetch-server.sh, and writes a table for each.
//
//	bin/lab-suites -table docs/data/servers.md redis-8.0 valkey-8.0
//	bin/lab-suites -quick valkey-8.0
//
// A server that cannot be fetched is a failure; with SEMA_SERVERS_OPTIONAL=1 it
// is said in a line, and that is all.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"sema/internal/fixture/redistest"
)

// suite is a package with tests that need a server.
type suite struct {
	name  string // below the module
	quick string // the tests to run with -quick, as go test's -run; empty means none
}

// The first suite says which server it runs on.
var suites = []suite{
	{"internal/fixture/redistest", "."},
	{"engines/redisengine", "^(" + strings.Join(quickTests, "|") + ")$"},
	{"redisson", "."},
	{"classic", "."},
	{"cmd/sema/internal/cli", ""},
}

// quickTests are those of the engine with -quick: the promises, and what servers
// answer when they refuse, which is where they differ.
var quickTests = []string{
	"TestPromises", "TestPromisesOnCluster", "TestScriptAgreesWithLedger", "TestFailoverUnderLoad",
	"TestMinimalRights", "TestMinimalRightsOnCluster", "TestHintedRights", "TestMissingRights", "TestAMuteUserKeepsTheLimit",
	"TestGrantWithoutReplicaIsGivenBack", "TestReplicasInACluster", "TestTooFewReplicas", "TestReadOnlyReplica",
	"TestScriptsAreForgotten", "TestLoading", "TestBusyScript", "TestOutOfMemory", "TestCannotSave", "TestNoConnectionLeft",
	"TestPasswords", "TestTLS",
}

func main() { os.Exit(run()) }

func run() int {
	quick := flag.Bool("quick", false, "a part of the tests, without the race detector")
	table := flag.String("table", "", "write the results to this page, between its markers")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "suites: which servers? Try: redis-7.0 redis-8.0 valkey-8.0 valkey-8.1")
		return 2
	}
	optional := os.Getenv("SEMA_SERVERS_OPTIONAL") == "1"
	var results []result
	failed := false
	for _, name := range flag.Args() {
		path, err := fetch(name)
		if err != nil {
			fmt.Printf("servers: not run on %v\n", err)
			failed = failed || !optional || !errors.Is(err, errUnreachable)
			continue
		}
		r := result{server: name}
		for _, s := range suites {
			if *quick && s.quick == "" {
				continue
			}
			o := test(path, s, *quick)
			if r.version == "" {
				r.version = o.version
			}
			r.outcomes = append(r.outcomes, o)
			fmt.Printf("%s: %s: %s\n", r.title(), s.name, o)
			failed = failed || !o.good()
		}
		results = append(results, r)
	}
	if *table != "" && len(results) > 0 {
		if err := write(*table, results); err != nil {
			fmt.Fprintf(os.Stderr, "suites: %v\n", err)
			return 1
		}
	}
	if failed {
		return 1
	}
	return 0
}

// errUnreachable: the packages of a server, or apt itself, are not to be had here.
var errUnreachable = errors.New("cannot be fetched")

// fetch has the script fetch a server, and gives the path of its program.
func fetch(name string) (string, error) {
	var complaint bytes.Buffer
	cmd := exec.Command("./scripts/fetch-server.sh", name)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 3 {
			err = errUnreachable
		}
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// test runs one suite on the server at path. What failed is printed as it fails.
func test(path string, s suite, quick bool) outcome {
	args := []string{"test", "-json", "-count=1", "-timeout=15m"}
	if quick {
		args = append(args, "-run="+s.quick)
	} else {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./"+s.name)...)
	cmd.Env = append(os.Environ(), redistest.ServerVariable+"="+path, "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	began := time.Now()
	o := outcome{suite: s.name}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "suites: go test: %v\n", err)
		o.broken = true
		return o
	}
	o.read(out, os.Stdout)
	if err := cmd.Wait(); err != nil && o.failed == 0 {
		o.broken = true // it did not compile, or a failure outside of a test
	}
	o.took = time.Since(began)
	return o
}
