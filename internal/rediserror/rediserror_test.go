package rediserror

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// reply returns go-redis's error for the server's reply text.
func reply(t *testing.T, text string) error {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		MaxRetries: -1, Protocol: 2, DisableIdentity: true,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go answer(server, text)
			return client, nil
		},
	})
	defer func() { _ = rdb.Close() }()
	err := rdb.Do(t.Context(), "get", "x").Err()
	if err == nil || err.Error() != text {
		t.Fatalf("go-redis says %v; want %s", err, text)
	}
	return err
}

// answer is a server that answers every GET with an error. It knows no HELLO,
// with which go-redis greets.
func answer(conn net.Conn, text string) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		switch line := strings.ToLower(lines.Text()); line {
		case "get":
			lines.Scan() // the length of the key
			lines.Scan() // the key
			_, _ = io.WriteString(conn, "-"+text+"\r\n")
		case "hello":
			_, _ = io.WriteString(conn, "-ERR unknown command\r\n")
		}
	}
}

func TestRepliesOfTheServer(t *testing.T) {
	const (
		again   = 1 << iota // Temporary
		nothing             // NotExecuted
	)
	for _, c := range []struct {
		text string
		want int
		hint string // a part of it; "" for no hint
	}{
		{"NOSCRIPT No matching script. Please use EVAL.", again | nothing, ""},
		{"READONLY You can't write against a read only replica.", again | nothing, "replica"},
		{"READONLY You can't write against a read only replica. script: 3d48f9bd9ebfb1ba1b3ef5f4e0a6cdb3a9d4b6a0, on @user_script:1.", again | nothing, "replica"},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", again | nothing, "SCRIPT KILL"},
		{"LOADING Redis is loading the dataset in memory", again | nothing, "loading"},
		{"OOM command not allowed when used memory > 'maxmemory'.", nothing, "maxmemory"},
		{"OOM command not allowed when used memory > 'maxmemory'. script: 3d48f9bd9ebfb1ba1b3ef5f4e0a6cdb3a9d4b6a0, on @user_script:1.", nothing, "maxmemory"},
		{"NOREPLICAS Not enough good replicas to write.", again | nothing, ""},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", again | nothing, ""},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", nothing, "disk"},
		{"CLUSTERDOWN Hash slot not served", again | nothing, ""},
		{"MOVED 3999 127.0.0.1:6381", again | nothing, "cluster"},
		{"ASK 3999 127.0.0.1:6381", again | nothing, ""},
		{"TRYAGAIN Multiple keys request during rehashing of slot", again | nothing, ""},
		{"CROSSSLOT Keys in request don't hash to the same slot", nothing, "{name}"},
		{"ERR max number of clients reached", again | nothing, "maxclients"},
		{"NOAUTH Authentication required.", nothing, "password"},
		{"ERR Protocol error: unauthenticated multibulk length", nothing, "password"},
		{"WRONGPASS invalid username-password pair or user is disabled.", nothing, "check user and password"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", 0, "docs/redis.md"},
		{"ERR The user executing the script can't run this command or subcommand script: 3d48f9bd9ebfb1ba1b3ef5f4e0a6cdb3a9d4b6a0, on @user_script:1.", 0, "docs/redis.md"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", nothing, "another name"},
		{"ERR Script killed by user with SCRIPT KILL. script: 3d48f9bd9ebfb1ba1b3ef5f4e0a6cdb3a9d4b6a0, on @user_script:1.", again | nothing, ""},
		{"ERR Script attempted to access a non local key in a cluster node script: 3d48f9bd9ebfb1ba1b3ef5f4e0a6cdb3a9d4b6a0, on @user_script:1.", 0, "{name}"},
		{"EXECABORT Transaction discarded because of previous errors.", nothing, ""},
		{"ERR value is not an integer or out of range", 0, ""},
		{"UNKILLABLE Sorry the script already executed write commands against the dataset.", 0, ""},
		{"BUSYGROUP Consumer Group name already exists", 0, ""},
	} {
		err := reply(t, c.text)
		for _, err := range []error{err, fmt.Errorf("wrapped: %w", err)} {
			got := Sort(err)
			if got.Temporary != (c.want&again != 0) || got.NotExecuted != (c.want&nothing != 0) {
				t.Errorf("%v: %+v", err, got)
			}
			if !strings.Contains(got.Hint, c.hint) || (got.Hint == "") != (c.hint == "") {
				t.Errorf("%v: hint %q; want something about %q", err, got.Hint, c.hint)
			}
			if !FromServer(err) {
				t.Errorf("%v: not taken for an answer of the server", err)
			}
		}
	}
}

// No prefix may hide a later one.
func TestTableHasNoPrefixOfAnother(t *testing.T) {
	for i, a := range replies {
		for j, b := range replies {
			if i != j && strings.HasPrefix(b.prefix, a.prefix) {
				t.Errorf("%q hides %q", a.prefix, b.prefix)
			}
		}
	}
}

func TestTroubleOnTheWay(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, c := range []struct {
		err  error
		want Meaning // its Hint is a part of the hint
	}{
		{nil, Meaning{}},
		{errors.New("anything else"), Meaning{}},
		{redis.Nil, Meaning{}},
		{redis.TxFailedErr, Meaning{}},
		{refused, Meaning{true, true, false, "address"}},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, Meaning{true, true, true, "address"}},
		{redis.ErrPoolTimeout, Meaning{true, true, true, "PoolSize"}},
		{redis.ErrPoolExhausted, Meaning{true, true, true, "PoolSize"}},
		{redis.ErrClosed, Meaning{false, true, false, ""}},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, Meaning{false, true, false, "certificate"}},
		{context.Canceled, Meaning{}},
		{context.DeadlineExceeded, Meaning{true, false, true, "overloaded"}},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, Meaning{true, false, true, "overloaded"}},
		{io.EOF, Meaning{true, false, false, "maxclients"}},
		{io.ErrUnexpectedEOF, Meaning{true, false, false, "maxclients"}},
		{reset, Meaning{true, false, false, "maxclients"}},
	} {
		for _, err := range []error{c.err, wrap(c.err)} {
			got := Sort(err)
			if got.Temporary != c.want.Temporary || got.NotExecuted != c.want.NotExecuted || got.Busy != c.want.Busy ||
				!strings.Contains(got.Hint, c.want.Hint) || (got.Hint == "") != (c.want.Hint == "") {
				t.Errorf("%v: %+v; want %+v", err, got, c.want)
			}
			if FromServer(err) {
				t.Errorf("%v: taken for an answer of the server", err)
			}
		}
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("wrapped: %w", err)
}

// A few of the above from a real server and a real socket.
func TestRealErrors(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := t.Context()
	check := func(what string, err error, temporary, notExecuted, fromServer bool) {
		t.Helper()
		got := Sort(err)
		if err == nil || got.Temporary != temporary || got.NotExecuted != notExecuted || FromServer(err) != fromServer {
			t.Errorf("%s: %v: %+v, from the server: %v", what, err, got, FromServer(err))
		}
	}
	expect.OK(t, rdb.HSet(ctx, "hash", "f", "v").Err())
	check("another type", rdb.Incr(ctx, "hash").Err(), false, true, true)
	check("unknown script", rdb.EvalSha(ctx, strings.Repeat("0", 40), nil).Err(), true, true, true)
	check("wrong type in a script", rdb.Eval(ctx, "return redis.call('INCR', KEYS[1])", []string{"hash"}).Err(), false, true, true)
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	check("memory full", rdb.Set(ctx, "x", 1, 0).Err(), false, true, true)
	check("memory full in a script", rdb.Eval(ctx, "return redis.call('SET', KEYS[1], 1)", []string{"x"}).Err(), false, true, true)
	_, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "x", 1, 0); return nil })
	check("memory full in a transaction", err, false, true, true)
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())

	impatient := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: 20 * time.Millisecond})
	defer func() { _ = impatient.Close() }()
	expect.OK(t, impatient.Ping(ctx).Err())
	check("no answer in time", impatient.Do(ctx, "debug", "sleep", "0.3").Err(), true, false, false)
	wrong := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, Username: "u", Password: "p"})
	defer func() { _ = wrong.Close() }()
	check("wrong password", wrong.Ping(ctx).Err(), false, true, true)
	server.Kill()
	last := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1})
	check("nobody listens", last.Ping(ctx).Err(), true, true, false)
	_ = last.Close()
	check("closed client", last.Ping(ctx).Err(), false, true, false)
}
