package redisengine

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"sema/engine"
	"sema/internal/rediserror"
)

// check asks the server once, before the first step, whether it is one for this client. A client of
// one server can use some names at a node of a cluster, and fails with the others.
func (c *caller) check(ctx context.Context, name string) error {
	if c.checked.Load() {
		return nil
	}
	mode, err := "", error(nil)
	if c.inline(ctx) {
		mode, err = c.mode(ctx)
	} else {
		mode, err = cancellable(ctx, func() (string, error) { return c.mode(ctx) })
	}
	var misfit *engine.Error
	switch {
	case err != nil && !rediserror.FromServer(err):
		misfit = c.wrap("step", name, err)
		c.speaksOther(misfit)
	case err != nil: // the step fails with it as well, or the server does not know HELLO
		return nil
	case mode == "cluster" && c.cluster == nil:
		misfit = &engine.Error{Err: rediserror.ErrNode, Hint: rediserror.HintCluster}
	case mode == "sentinel":
		misfit = &engine.Error{Err: errors.New("the server is a Sentinel"), Hint: "use redis.NewFailoverClient, redis+sentinel://"}
	default:
		c.checked.Store(true)
		return nil
	}
	misfit.Op, misfit.Name, misfit.NotExecuted = "step", name, true
	return misfit
}

// mode is the server's own word for its kind. A cluster client learns the cluster's map instead.
func (c *caller) mode(ctx context.Context) (string, error) {
	if c.cluster != nil {
		_, err := c.cluster.MasterForKey(ctx, "sema")
		return "", err
	}
	mode, err := rediserror.Mode(ctx, c.rdb)
	if err != nil {
		return "", c.notSent(err)
	}
	return mode, nil
}

// probeTime bounds the question whether a server speaks TLS.
const probeTime = 500 * time.Millisecond

// speaksOther changes the error of a server that speaks no TLS if the client does, or the other way
// round. Otherwise it looks like a server that is slow or restarts. A TLS server that gets a plain command
// closes the connection, so one that was not in time is just busy.
func (t *topology) speaksOther(failure *engine.Error) {
	if !t.tls && failure.Busy {
		return
	}
	conn, err := net.DialTimeout("tcp", t.addr, probeTime)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(probeTime))
	if !t.tls {
		// The answer is not used, so nobody need vouch for the server.
		if tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake() == nil { //nolint:gosec
			failure.Temporary, failure.Hint = false, "the server wants TLS: a client with TLSConfig, rediss://"
		}
		return
	}
	first := []byte{0}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return
	}
	if _, err := conn.Read(first); err == nil && (first[0] == '+' || first[0] == '-') {
		failure.Temporary, failure.Hint = false, rediserror.HintNoTLS
	}
}
