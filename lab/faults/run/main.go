// Command run plays rounds of the fault suite and writes down what came out.
//
//	bin/lab-faults-run -grounds standalone,sentinel -for 10m -seed 1 -out faults.json
//	bin/lab-faults-run -grounds sentinel -seed 17 -rounds 1 -fault 'kill -9 of a worker'
//
// A round's plan follows from its seed; what processes and servers make of it
// does so as far as their host allows. Each round is a line of JSON in -out. The
// exit status is 1 if a promise was broken, 2 if a round could not be played.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"sema/internal/fixture/child"
	"sema/lab/faults/ground"
)

// settings are what the command line says.
type settings struct {
	grounds  []string
	total    time.Duration
	rounds   int
	seed     uint64
	out      string
	dir      string
	fault    string
	planted  string
	parallel int
	long     time.Duration
}

func main() {
	logging.Disable() // go-redis tells of each connection that a fault ended
	child.Role(workerRole, job.play)
	child.Play()
	os.Exit(run())
}

func run() int {
	var s settings
	grounds := flag.String("grounds", "all", "where rounds take place, separated by commas")
	flag.DurationVar(&s.total, "for", 10*time.Minute, "begin no round after so long")
	flag.IntVar(&s.rounds, "rounds", 1<<30, "how many rounds at the most on each ground")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().Unix()), "the first seed; each ground has a round of each seed")
	flag.StringVar(&s.out, "out", "", "append a line of JSON for each round to this file")
	flag.StringVar(&s.dir, "histories", os.TempDir(), "where the records of broken promises are saved")
	flag.StringVar(&s.fault, "fault", "", "only this fault; \"mixed\": always several")
	flag.StringVar(&s.planted, "planted", "", "plant this bug in the workers; \"all\": each, with up to five seeds")
	flag.IntVar(&s.parallel, "parallel", 1, "so many rounds at once")
	flag.DurationVar(&s.long, "round", 14*time.Second, "how long faults come in a round; half a minute is added to it")
	flag.Parse()
	if s.grounds = strings.Split(*grounds, ","); *grounds == "all" {
		s.grounds = ground.Kinds()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := &player{settings: s, newGround: ground.New, log: os.Stderr}
	return p.play(ctx)
}

// replay is the command that plays a round again.
func (s settings) replay(ground string, seed uint64) string {
	c := fmt.Sprintf("bin/lab-faults-run -grounds %s -seed %d -rounds 1", ground, seed)
	if s.fault != "" {
		c += fmt.Sprintf(" -fault %q", s.fault)
	}
	if s.planted != "" {
		c += fmt.Sprintf(" -planted %q", s.planted)
	}
	return c
}
