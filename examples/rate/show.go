package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"sema"
)

// soon is how long callers wait for a permit that does not come.
const soon = time.Second

// show tells what becomes of callers that are limited in several ways. Rates are for
// an hour, so that none of them comes back meanwhile.
func show(ctx context.Context, engine sema.Engine, rate *redis_rate.Limiter, out io.Writer) error {
	sem, err := sema.New(engine, "service", 2, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }()
	for _, part := range []func(context.Context, *sema.Semaphore, *redis_rate.Limiter, io.Writer) error{
		oneOrBoth, noPlace, longQueue, overTheRate, overHTTP,
	} {
		if err := part(ctx, sem, rate, out); err != nil {
			return err
		}
	}
	return nil
}

// oneOrBoth: twelve callers at once, with one of the limits, and with both.
func oneOrBoth(ctx context.Context, sem *sema.Semaphore, rate *redis_rate.Limiter, out io.Writer) error {
	l := limits{atOnce: sem, rate: rate, limit: redis_rate.PerHour(6)}
	const callers = 12

	service := await(6)
	refused, err := crowd(callers, func() error {
		if err := l.token(ctx, "alone"); err != nil {
			return err
		}
		service.call(ctx)
		return nil
	})
	fmt.Fprintf(out, "rate alone, 6 an hour: %d sent, %d at once, %d told to come later\n", service.sent, service.most, refused)
	if err != nil {
		return err
	}

	service = await(2)
	refused, err = crowd(callers, func() error {
		return sem.Do(ctx, func(ctx context.Context) error { service.call(ctx); return nil })
	})
	fmt.Fprintf(out, "permits alone, 2 at once: %d sent, %d at once, %d told to come later\n", service.sent, service.most, refused)
	if err != nil {
		return err
	}

	service = await(2)
	refused, err = crowd(callers, func() error { return l.call(ctx, "both", service) })
	fmt.Fprintf(out, "both: %d sent, %d at once, %d told to come later\n", service.sent, service.most, refused)
	return err
}

// call is what a program does for each request.
func (l limits) call(ctx context.Context, key string, service *service) error {
	permit, err := l.begin(ctx, key)
	if err != nil {
		return err
	}
	service.call(permit.Context(ctx))
	return permit.Release()
}

// tokenFirst is call in the wrong order. It says when it has its token.
func (l limits) tokenFirst(ctx context.Context, key string, service *service, token func()) error {
	if err := l.token(ctx, key); err != nil {
		return err
	}
	token()
	return l.atOnce.Do(ctx, func(ctx context.Context) error { service.call(ctx); return nil })
}

// noPlace: six callers find both places taken, and leave.
func noPlace(ctx context.Context, sem *sema.Semaphore, rate *redis_rate.Limiter, out io.Writer) error {
	l := limits{atOnce: sem, rate: rate, limit: redis_rate.PerHour(6)}
	all, err := sem.Acquire(ctx, sema.Weight(2))
	if err != nil {
		return err
	}
	defer func() { _ = all.Release() }() // the slow ones
	service := await(1)
	short, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	var mu sync.Mutex
	spent := 0
	if _, err := crowd(6, func() error {
		return l.tokenFirst(short, "no place, token first", service, func() { mu.Lock(); spent++; mu.Unlock() })
	}); !errors.Is(err, sema.ErrBusy) {
		return fmt.Errorf("the places were taken: %w", err)
	}
	fmt.Fprintf(out, "no place is free, token first: %d sent, %d of 6 tokens spent\n", service.sent, spent)

	short, cancel = context.WithTimeout(ctx, soon)
	defer cancel()
	if _, err := crowd(6, func() error { return l.call(short, "no place, permit first", service) }); !errors.Is(err, sema.ErrBusy) {
		return fmt.Errorf("the places were taken: %w", err)
	}
	left, err := rate.AllowAtMost(ctx, "no place, permit first", l.limit, 6)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "no place is free, permit first: %d sent, %d of 6 tokens spent\n", service.sent, 6-left.Allowed)
	return nil
}

// longQueue: two callers wait for their permit for an hour, and then two more come.
func longQueue(ctx context.Context, sem *sema.Semaphore, rate *redis_rate.Limiter, out io.Writer) error {
	l := limits{atOnce: sem, rate: rate, limit: redis_rate.PerHour(2)}
	for _, order := range []struct {
		name string
		call func(key string, service *service, came func()) error
	}{
		{"token first", func(key string, service *service, came func()) error {
			return l.tokenFirst(ctx, key, service, came)
		}},
		{"permit first", func(key string, service *service, came func()) error {
			came()
			return l.call(ctx, key, service)
		}},
	} {
		all, err := sem.Acquire(ctx, sema.Weight(2))
		if err != nil {
			return err
		}
		service, key := await(2), "an hour, "+order.name
		came := make(chan struct{}, 4)
		ended := make(chan error, 4)
		for hour := range 2 {
			for range 2 {
				go func() { ended <- order.call(key, service, func() { came <- struct{}{} }) }()
			}
			<-came
			<-came
			if hour == 0 { // Reset is the hour that passes
				if err := rate.Reset(ctx, key); err != nil {
					return err
				}
			}
		}
		if err := all.Release(); err != nil {
			return err
		}
		refused := 0
		for range 4 {
			var above *later
			switch err := <-ended; {
			case errors.As(err, &above):
				refused++
			case err != nil:
				return err
			}
		}
		fmt.Fprintf(out, "an hour in the queue, %s: %d sent in an hour of 2, %d told to come later\n", order.name, service.sent, refused)
	}
	return nil
}

// overTheRate: one tenant is above its rate, and another is not.
func overTheRate(ctx context.Context, sem *sema.Semaphore, rate *redis_rate.Limiter, out io.Writer) error {
	for _, l := range []limits{
		{atOnce: sem, rate: rate, limit: redis_rate.PerHour(1), patience: 2 * time.Hour},
		{atOnce: sem, rate: rate, limit: redis_rate.PerHour(1)},
	} {
		service := await(1)
		for _, tenant := range []string{"acme", "globex"} {
			if err := rate.Reset(ctx, tenant); err != nil {
				return err
			}
		}
		if err := l.call(ctx, "globex", service); err != nil {
			return err
		}
		leaving, leave := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			_, _ = crowd(2, func() error { return l.call(leaving, "globex", service) }) // in vain
			close(ended)
		}()
		does := "gives its permits back"
		if l.patience > 0 {
			does = "keeps its permits"
			for used := 0; used < 2; {
				st, err := sem.State(ctx)
				if err != nil {
					leave()
					return err
				}
				used = st.Used
			}
		} else {
			<-ended
		}
		short, cancel := context.WithTimeout(ctx, soon)
		before := service.sent
		err := l.call(short, "acme", service)
		cancel()
		fmt.Fprintf(out, "globex is above its rate and %s: %d of 1 request of acme sent\n", does, service.sent-before)
		leave()
		<-ended
		if err != nil && !errors.Is(err, sema.ErrBusy) {
			return err
		}
	}
	return nil
}

// overHTTP: the same as a handler.
func overHTTP(ctx context.Context, sem *sema.Semaphore, rate *redis_rate.Limiter, out io.Writer) error {
	l := limits{atOnce: sem, rate: rate, limit: redis_rate.PerHour(2)}
	service := await(1)
	front := httptest.NewServer(l.handler(
		func(r *http.Request) string { return "http, " + r.Header.Get("Tenant") },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { service.call(r.Context()) })))
	defer front.Close()
	for _, tenant := range []string{"globex", "globex", "globex", "acme"} {
		sent, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL, nil)
		if err != nil {
			return err
		}
		sent.Header.Set("Tenant", tenant)
		resp, err := front.Client().Do(sent)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s", tenant, resp.Status)
		if after := resp.Header.Get("Retry-After"); after != "" {
			seconds, err := strconv.Atoi(after)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, ", Retry-After within %.0f minutes", math.Ceil(float64(seconds)/60))
		}
		fmt.Fprintln(out)
		if err := resp.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}

// crowd has n callers call at once, and counts those who are told to come later.
func crowd(n int, call func() error) (refused int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			e := call()
			mu.Lock()
			defer mu.Unlock()
			var above *later
			if errors.As(e, &above) {
				refused++
			} else if e != nil {
				err = e
			}
		})
	}
	wg.Wait()
	return refused, err
}
