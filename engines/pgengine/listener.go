package pgengine

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// pingEvery is how often a silent connection is checked: the server must answer, and
	// must not have become a standby.
	pingEvery = 10 * time.Second
	pingTime  = 5 * time.Second

	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
)

// listener is a store with the ability of a register.Listener. It has the connection; register/poll.go decides when a process
// listens, and when it looks.
type listener struct {
	*store
	config connConfig
}

// Listen implements register.Listener.
func (l *listener) Listen(ctx context.Context, process string, receive func(string), up, down func()) {
	pause := firstPause
	for ctx.Err() == nil {
		begun := false
		_ = l.listenOnce(ctx, process, receive, func() { begun = true; up() }) // try again after any error
		if begun {
			down()
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		pause = min(2*pause, lastPause)
	}
}

var errStandby = errors.New("a standby")

// listenOnce listens on one connection until that fails or ctx ends.
func (l *listener) listenOnce(ctx context.Context, process string, receive func(string), up func()) error {
	c, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		own, cancel := context.WithTimeout(context.Background(), firstPause)
		defer cancel()
		_ = c.Close(own)
	}()
	first, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if _, err := c.Exec(first, "LISTEN "+pgx.Identifier{channel(process)}.Sanitize()); err != nil {
		return err
	}
	// The server may not have noticed the end of the previous connection, which then
	// still has the lock. Without the lock a process counts as dead.
	_, _ = c.Exec(first, "SET lock_timeout = '2s'")
	_, _ = c.Exec(first, lockListener, process)
	locked, err := ping(first, c, process)
	if err != nil {
		return err
	}
	up()
	for {
		every := pingEvery
		if !locked {
			every = firstPause
		}
		wait, cancel := context.WithTimeout(ctx, every)
		n, err := c.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case err == nil:
			receive(n.Payload)
		case ctx.Err() != nil || !silent:
			return err
		default:
			short, cancel := context.WithTimeout(ctx, pingTime)
			locked, err = ping(short, c, process)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// ping checks that the server answers and is no standby. It also takes the lock, which
// one connection may take more than once.
func ping(ctx context.Context, c *pgx.Conn, process string) (locked bool, err error) {
	standby := false
	err = c.QueryRow(ctx, tryLockListener, process).Scan(&standby, &locked)
	if err == nil && standby {
		err = errStandby
	}
	return locked, err
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	config, err := l.config(ctx)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}
