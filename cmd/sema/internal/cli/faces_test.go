//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/fixture/redistest"
)

// A process has more callers than tickets: each view of the semaphore counts
// the callers.
func TestEveryFaceCountsCallers(t *testing.T) {
	t.Parallel()
	const callers = 20
	server := redistest.Start(t)
	e, err := redisengine.New(server.Client(), nil)
	expect.OK(t, err)
	t.Cleanup(func() { _ = e.Close() })
	sem := opened.Semaphore(t, e, "jobs", 1, &sema.Options{Lease: 20 * time.Second}) // it asks again every few seconds, and says how many wait
	held, err := sem.Acquire(t.Context())
	expect.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range callers {
		go func() { _, _ = sem.Acquire(ctx) }()
	}
	o := opened.Operator(t, e, "jobs")
	expect.Until(t, "all are counted", func() bool {
		st, err := o.State(expect.Within(t))
		expect.OK(t, err)
		if len(st.Waiters) >= callers {
			t.Fatalf("%d tickets: this shows nothing", len(st.Waiters))
		}
		return st.Waiting() == callers
	})

	url := "redis://" + server.Addr()
	env := "SEMA_URL=" + url
	at := serve(t, "--url", url).url
	type shown struct {
		Waiting int
		Waiters []struct{ Behind int }
	}
	for face, text := range map[string]string{
		"sema ls": ok(t, env, "ls", "--json"), "GET the list": get(t, at+"/v1/semaphores"),
	} {
		var list struct{ Semaphores []shown }
		expect.OK(t, json.Unmarshal([]byte(text), &list))
		if len(list.Semaphores) != 1 || list.Semaphores[0].Waiting != callers {
			t.Errorf("%s: %s", face, text)
		}
	}
	for face, text := range map[string]string{"sema show": ok(t, env, "show", "--json", "jobs"), "GET one": get(t, at+"/v1/semaphores/jobs")} {
		var one shown
		expect.OK(t, json.Unmarshal([]byte(text), &one))
		n := len(one.Waiters)
		for _, w := range one.Waiters {
			n += w.Behind
		}
		if one.Waiting != callers || n != callers {
			t.Errorf("%s: %s", face, text)
		}
	}
	refused := ""
	expect.Until(t, "a refusal that says who waits", func() bool { // a busy machine may answer too late for it
		_, refused = run(t, env, "run", "--no-wait", "jobs", "--", "true")
		return strings.Contains(refused, "waiting")
	})
	for face, is := range map[string]struct{ text, want string }{
		"sema show, in words":      {ok(t, env, "show", "jobs"), fmt.Sprintf("waiting %d\n", callers)},
		"sema run that is refused": {refused, fmt.Sprintf("%d waiting", callers)},
		"the dashboard's list":     {get(t, at+"/"), fmt.Sprintf(`data-label="Waiting">%d<`, callers)},
		"the dashboard's page":     {get(t, at+"/semaphore?name=jobs"), fmt.Sprintf(">%d wait</a>", callers)},
		"metrics":                  {get(t, at+"/metrics"), fmt.Sprintf(`sema_queue_size{sema_name="jobs"} %d`, callers)},
	} {
		if !strings.Contains(is.text, is.want) {
			t.Errorf("%s: no %q in\n%s", face, is.want, is.text)
		}
	}
	cancel()
	expect.OK(t, held.Release())
}
