package redisengine

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"sema/engine"
)

// fault is what an error of a call means for the next step.
type fault struct {
	retry       bool // the same call may succeed soon
	notExecuted bool // certainly nothing was changed
	hint        string
}

// serverFaults sorts the errors Redis answers with, by their first word or
// words. All of them come before anything was written.
var serverFaults = []struct {
	prefix string
	fault
}{
	{"NOSCRIPT", fault{retry: true, notExecuted: true}},
	{"READONLY", fault{retry: true, notExecuted: true, hint: "the server is a replica: connect to the master, or through Sentinel or Cluster"}},
	{"LOADING", fault{retry: true, notExecuted: true, hint: "the server is still loading its data: wait"}},
	{"BUSY ", fault{retry: true, notExecuted: true, hint: "a script of somebody else's blocks the server: SCRIPT KILL ends it"}},
	{"MASTERDOWN", fault{retry: true, notExecuted: true}},
	{"CLUSTERDOWN", fault{retry: true, notExecuted: true}},
	{"MOVED", fault{retry: true, notExecuted: true, hint: "the server is part of a cluster: use a cluster client, redis+cluster://"}},
	{"ASK", fault{retry: true, notExecuted: true}},
	{"TRYAGAIN", fault{retry: true, notExecuted: true}},
	{"NOREPLICAS", fault{retry: true, notExecuted: true}},
	{"ERR max number of clients", fault{retry: true, notExecuted: true, hint: "the server has no connection left: raise its maxclients"}},
	{"OOM", fault{notExecuted: true, hint: "the server's memory is full: raise its maxmemory; releases still work"}},
	{"MISCONF", fault{notExecuted: true, hint: "the server cannot save to disk and refuses writes: see its log"}},
	{"NOAUTH", fault{notExecuted: true, hint: "the server wants a password: redis://user:password@host"}},
	// What a server with a password says to a request of more than ten words.
	{"ERR Protocol error: unauthenticated", fault{notExecuted: true, hint: "the server wants a password: redis://user:password@host"}},
	{"WRONGPASS", fault{notExecuted: true, hint: "user or password is wrong"}},
	{"WRONGTYPE", fault{notExecuted: true, hint: "another program uses a key of this name: choose another name for the semaphore, or delete that key"}},
	// What a script says when its user lacks a right.
	{"ERR The user executing the script", fault{hint: "the user lacks rights: see docs/redis.md for those it needs"}},
	{"NOPERM", fault{hint: "the user lacks rights: it needs ~sema:* &sema:* +@all -@dangerous or, at least, the commands in docs/redis.md"}},
}

func sortError(err error) fault {
	text := err.Error()
	for _, f := range serverFaults {
		if strings.HasPrefix(text, f.prefix) {
			return f.fault
		}
	}
	var dial *net.OpError
	var network net.Error
	switch {
	case errors.Is(err, errLate), errors.Is(err, errNotSent):
		return fault{retry: true, notExecuted: true}
	case errors.Is(err, engine.ErrClosed):
		return fault{notExecuted: true}
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, redis.ErrPoolTimeout):
		return fault{retry: true, notExecuted: true, hint: "check that the server runs and the address is right"}
	case errors.Is(err, redis.ErrClosed):
		return fault{notExecuted: true}
	case errors.Is(err, context.Canceled):
		return fault{}
	case isTimeout(err):
		return fault{retry: true, hint: "check that the server runs and is not overloaded"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		// The request may have been executed and only its answer lost. (With
		// maxclients reached the server hangs up, too, mostly before its words
		// were read.)
		return fault{retry: true, hint: "the server closed the connection: see whether it restarted, or reached its maxclients"}
	}
	return fault{}
}

// wrap makes the typed error of a failed operation.
func wrap(op, name string, err error) *engine.Error {
	f := sortError(err)
	return &engine.Error{Op: op, Name: name, NotExecuted: f.notExecuted, Temporary: f.retry, Hint: f.hint, Err: err}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// isReply tells the server's refusals from trouble with the connection.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !strings.HasPrefix(err.Error(), "redis:")
}
