package measure

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sleeper is a crew of four that work for a fixed time, on the bubble's clock.
func sleeper(name string, d time.Duration) Player {
	return Player{name, NewCrew(Gate{Work: func(_ context.Context, _ int, held func()) error {
		time.Sleep(d)
		held()
		return nil
	}}, 4, 0).Play}
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		series, err := Turns(t.Context(), Plan{Rounds: 3, Round: 10 * time.Second, Warmup: time.Second},
			[]Player{sleeper("quick", time.Millisecond), sleeper("slow", 4*time.Millisecond)},
			func(_ int, s Series) { order = append(order, s.Name) })
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "quick slow slow quick quick slow" {
			t.Errorf("order of turns: %s", got)
		}
		c := Case{Contestants: series}
		if r := c.Ratio(series[0], series[1], Rate).Median; r < 3.9 || r > 4.1 {
			t.Errorf("ratio %v, want 4", r)
		}
		if p := c.Spread(series[1], P99); p.Median != 4e6 || p.Min > p.Median || p.Max < p.Median {
			t.Errorf("p99 %+v, want 4 ms", p)
		}
		if held := series[0].Rounds[0].MaxHeld; held < 1 || held > 4 {
			t.Errorf("%d held at once by four", held)
		}
	})
}

// Lanes take turns; a pair's time is its own, whatever the others do.
func TestLaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		sleeps := func(name string, d time.Duration) Lane {
			return Lane{name, Gate{Units: 2, Work: func(context.Context, int, func()) error {
				n++
				time.Sleep(d * time.Duration(1+n%2)) // once and twice as long
				return nil
			}}}
		}
		const slice, wanted = 30 * time.Millisecond, 20
		all, laps, stalled, err := RunLaps(t.Context(), Store{}, slice, wanted, []Lane{sleeps("quick", time.Millisecond), sleeps("slow", 4*time.Millisecond)})
		if err != nil || laps+stalled != 20 || laps == 0 {
			t.Fatalf("%d laps, %d stalled, %v", laps, stalled, err)
		}
		if quick := all[0]; quick.P10.Median != 0.5e6 || quick.P90.Median != 1e6 || quick.Ratio.Median != 1 {
			t.Errorf("quick: %+v", quick)
		}
		if slow := all[1]; slow.P10.Median != 2e6 || slow.P90.Median != 4e6 || slow.Ratio.Min < 2 || slow.Ratio.Max > 8 || slow.Ratio.Median < 2 {
			t.Errorf("slow: %+v", slow)
		}
		broken := Lane{"broken", Gate{Work: func(context.Context, int, func()) error { return errors.New("broken") }}}
		if _, _, _, err := RunLaps(t.Context(), Store{}, slice, wanted, []Lane{broken}); err == nil || !strings.Contains(err.Error(), "broken: broken") {
			t.Errorf("%v, want what broke", err)
		}
	})
}

func TestScriptsOfAServer(t *testing.T) {
	rdb := redistest.Start(t).Client()
	s := Store{Redis: rdb}
	nothing := redis.NewScript("return 1")
	expect.OK(t, nothing.Load(t.Context(), rdb).Err())
	before, err := s.scripts(t.Context())
	expect.OK(t, err)
	for range 100 {
		expect.OK(t, nothing.Run(t.Context(), rdb, nil).Err())
	}
	after, err := s.scripts(t.Context())
	expect.OK(t, err)
	if did := after.less(before); did.calls != 100 || did.median() <= 0 {
		t.Errorf("%+v, want 100 calls and their median", did)
	}
	h := scripts{buckets: map[int64]float64{1: 10, 4: 10, 8: 50, 16: 60}}
	if got := h.median(); got != 6000 { // the twentieth of forty between 4 and 8
		t.Errorf("median %v, want 6 µs", got)
	}
}

// A contestant that fails has no more turns. Its other workers wait for what
// only the failed one could give.
func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	fails := Player{"x", NewCrew(Gate{Work: func(ctx context.Context, worker int, _ func()) error {
		if worker == 0 {
			return broken
		}
		<-ctx.Done()
		return ctx.Err()
	}}, 2, 0).Play}
	plan := Plan{Rounds: 2, Round: time.Hour}
	if series, err := Turns(t.Context(), plan, []Player{fails}, nil); err != nil || series[0].Failed != "broken" || len(series[0].Rounds) > 0 {
		t.Errorf("%+v, %v", series, err)
	}
	plan.Strict = true
	if _, err := Turns(t.Context(), plan, []Player{fails}, nil); !errors.Is(err, broken) || !strings.Contains(err.Error(), "x") {
		t.Errorf("error %v, want the contestant's, with its name", err)
	}
	for _, plan := range []Plan{{}, {Rounds: 1}, {Round: time.Second}, {Rounds: 1, Round: time.Second, Warmup: -1}} {
		if _, err := Turns(t.Context(), plan, nil, nil); err == nil {
			t.Errorf("plan %+v was run", plan)
		}
	}
}

// converse says lines to a driver, each after the answer to the last, and
// returns what it said.
func converse(t *testing.T, store Store, lines ...string) (said []string, err error) {
	t.Helper()
	in, tell := io.Pipe()
	hear, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Serve(t.Context(), in, out, store.Gate)
		_ = out.Close()
	}()
	answers := bufio.NewScanner(hear)
	for _, line := range lines {
		if _, err := io.WriteString(tell, line+"\n"); err != nil || !answers.Scan() {
			break
		}
		said = append(said, answers.Text())
	}
	_, _ = tell.Close(), in.Close()
	return said, <-done
}

// TestGates runs each contestant twice: the first run must leave nothing held,
// or the second one gets nothing.
func TestGates(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a server")
	}
	rdb := redistest.Start(t).Client()
	memory := memengine.New()
	t.Cleanup(func() { _ = memory.Close() })
	for _, name := range []string{"sema", "channel", "noop-pool", "noop-autopipeline", "message", "queue", "hold", "idle"} {
		for range 2 {
			said, err := converse(t, Store{Engine: memory, Redis: rdb},
				`{"contestant":"`+name+`","name":"`+name+`","limit":1,"workers":2,"lease_ms":10000,"names":2,"crowd":20,"hold_us":100}`, `{"run_ms":20}`)
			if err != nil || len(said) != 2 || !strings.Contains(said[0], `"ready":true`) || strings.Contains(said[1], `"done":0`) {
				t.Errorf("%s: %v, said %s", name, err, said)
			}
		}
	}
}

func TestServeRefuses(t *testing.T) {
	store := Store{Engine: memengine.New()}
	t.Cleanup(func() { _ = store.Engine.Close() })
	for line, want := range map[string]string{
		`nonsense`: "malformed", `{"walk":1}`: "malformed", `{"limit":0,"workers":1}`: "limit 0",
		`{"limit":1,"workers":1,"contestant":"nobody"}`:                       `unknown contestant \"nobody\"`,
		`{"limit":1,"workers":1,"contestant":"sema","name":"x","lease_ms":1}`: "lease 1ms",
	} {
		said, err := converse(t, store, line)
		if err == nil || len(said) != 1 || !strings.Contains(said[0], `{"error":"`) || !strings.Contains(said[0], want) {
			t.Errorf("%q: %v, said %s", line, err, said)
		}
	}
}

func TestAnswersThatCannotBe(t *testing.T) {
	s := Setup{Workers: 4, HoldUS: 1000}
	good := Answer{Round: Round{Done: 10, ElapsedNS: 1e9, HoldNS: 1e7, MaxHeld: 4}, Waits: [][2]int64{{100, 10}}}
	if err := good.check(s); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Answer){
		"no time": func(a *Answer) { a.ElapsedNS = 0 }, "too many at once": func(a *Answer) { a.MaxHeld = 5 },
		"too many waits": func(a *Answer) { a.Done = 9 }, "too short holds": func(a *Answer) { a.HoldNS = 7e6 },
	} {
		bad := good
		change(&bad)
		if bad.check(s) == nil {
			t.Errorf("%s pass", what)
		}
	}
}

func TestSum(t *testing.T) {
	r := sum(time.Second, Answer{Round{Done: 2, ElapsedNS: 5}, [][2]int64{{100, 98}, {900, 1}}, nil}, Answer{Round{Done: 1, ElapsedNS: 2e9}, [][2]int64{{300, 1}}, nil})
	if r.Done != 3 || r.ElapsedNS != 2e9 || r.P50NS != 100 || r.P99NS != 300 || r.LongestNS != 900 {
		t.Errorf("%+v", r)
	}
	// Two processes; once the first one gets what it gave back itself.
	r = sum(time.Second, Answer{Stamps: []Stamp{{10, 20}, {70, 80}, {85, 90}}}, Answer{Stamps: []Stamp{{25, 30}}})
	if r.P50NS != 5 || r.LongestNS != 40 {
		t.Errorf("hand-offs: %+v", r)
	}
	if got := SpreadOf(4, 1, 2, 10); got != (Spread{3, 1, 10}) {
		t.Errorf("spread %v", got)
	}
	if p := Possible(Case{Limit: 8, HoldUS: 1, RoundTripNS: 2e6}, Round{Done: 1000, ElapsedNS: 1e9, HoldNS: 2e9}); p != 0.5 {
		t.Errorf("%v of what 8 permits allow, each taken again 4 ms after the last time; want 0.5", p)
	}
}

func TestSampleOfINFO(t *testing.T) {
	commands := map[string]string{"cmdstat_evalsha": "calls=10,usec=2500,usec_per_call=250.00", "cmdstat_eval": "calls=1,usec=100", "cmdstat_publish": "calls=7,usec=70"}
	for _, cpu := range []map[string]string{
		{"used_cpu_sys": "9.0", "used_cpu_user": "9.0", "used_cpu_sys_main_thread": "0.5", "used_cpu_user_main_thread": "1.0"},
		{"used_cpu_sys": "0.5", "used_cpu_user": "1.0"},
	} {
		var got sample
		got.add(cpu, commands)
		if want := (sample{calls: 11, script: 2600e3, cpu: 1500e6}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestTable(t *testing.T) {
	r := Result{columns: []Column{rate, p50, clientCPU, ratio("ratio", "RATIO", Rate, -1)}, Rows: []Row{
		{Case: "n=1", Who: "sema", Figures: map[string]Spread{"rate": {2000, 1000, 3456}, "p50_ns": {2e6, 1, 2}}},
		{Case: "n=1", Who: "channel", Figures: map[string]Spread{"ratio": {0.5, 0.5, 0.5}}},
	}}
	want := `
CASE  WHO      PAIRS/S              P50     RATIO
n=1   sema     2,000 (1,000–3,460)  2.0 ms
n=1   channel                               0.500
`
	if got := "\n" + r.Table(); got != want {
		t.Errorf("got %s\nwant %s", strings.ReplaceAll(got, " ", "·"), strings.ReplaceAll(want, " ", "·"))
	}
	for in, want := range map[float64]string{0: "0", 4.356: "4.36", 123.4: "123", 52692: "52,700", 16866993: "16,900,000", 999.9: "1,000"} {
		if got := Count(in); got != want {
			t.Errorf("Count(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{59: "59 ns", 1500: "1.5 µs", 142e3: "142 µs", 2.2e6: "2.2 ms", 1.3e9: "1.3 s"} {
		if got := Duration(in); got != want {
			t.Errorf("Duration(%v) = %s, want %s", in, got, want)
		}
	}
}
