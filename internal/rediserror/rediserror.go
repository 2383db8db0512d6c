// Package rediserror sorts the errors of go-redis: may the same request be sent
// again, did it change anything, and what can the user do about it. All packages
// that talk to Redis go by this one table.
package rediserror

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Meaning says what an error tells about the request that failed. The zero
// Meaning says nothing: the request may have been executed, and sending it
// again is not known to help.
type Meaning struct {
	// Temporary: the same request may succeed soon.
	Temporary bool

	// NotExecuted: the request certainly changed nothing. This is about one
	// request that was sent once: a command, or a script that looks at the
	// types of its keys before its first write. It is not about the other
	// commands of a transaction, which Redis executes although one fails, and
	// not about earlier copies that go-redis sent by itself (MaxRetries).
	NotExecuted bool

	// Busy: there was no answer or no place in time. The server may only be busy.
	Busy bool

	// Hint is what the user can try; it may be empty.
	Hint string
}

// ErrNode says that a client of one server is at a node of a cluster.
var ErrNode = errors.New("the server is a node of a cluster, and the client is for one server")

// HintCluster says what to try then.
const HintCluster = "the server is part of a cluster: use redis.NewClusterClient, redis+cluster://"

// HintNoTLS is for a client with TLS at a server without.
const HintNoTLS = "the server speaks no TLS here: a client without TLSConfig, redis://, or the server's tls-port"

// HintPool is for calls that got no connection in time.
const HintPool = "all connections of the go-redis client are in use: raise its PoolSize, or see what holds them, such as a BLPOP"

const (
	hintAddress  = "write the address as host:port, without redis://; redis.ParseURL reads a URL"
	hintPassword = "the server wants a password: redis://user:password@host"
	hintRights   = "the user lacks rights: see docs/redis.md for those that sema needs, docs/choosing.md for the others"
	hintSlots    = "on a cluster all keys of one request must be in the same slot: give the name a hash tag, such as {name}"
)

// replies sorts what the server answers, by the first words of the error. No
// prefix here is the beginning of another one.
var replies = []struct {
	prefix string
	Meaning
}{
	{"NOSCRIPT ", Meaning{Temporary: true, NotExecuted: true}},
	{"READONLY ", Meaning{Temporary: true, NotExecuted: true, Hint: "the server is a replica: connect to the master, or through Sentinel or Cluster"}},
	{"LOADING ", Meaning{Temporary: true, NotExecuted: true, Hint: "the server is still loading its data: wait"}},
	{"BUSY ", Meaning{Temporary: true, NotExecuted: true, Hint: "a script of somebody else's blocks the server: SCRIPT KILL ends it"}},
	{"MASTERDOWN ", Meaning{Temporary: true, NotExecuted: true}},
	{"CLUSTERDOWN ", Meaning{Temporary: true, NotExecuted: true}},
	{"MOVED ", Meaning{Temporary: true, NotExecuted: true, Hint: HintCluster}},
	{"ASK ", Meaning{Temporary: true, NotExecuted: true}},
	{"TRYAGAIN ", Meaning{Temporary: true, NotExecuted: true}},
	{"NOREPLICAS ", Meaning{Temporary: true, NotExecuted: true}},
	{"ERR max number of clients reached", Meaning{Temporary: true, NotExecuted: true, Busy: true, Hint: "the server has no connection left: raise its maxclients"}},
	// SCRIPT KILL works only on a script that has written nothing.
	{"ERR Script killed by user with SCRIPT KILL", Meaning{Temporary: true, NotExecuted: true}},

	{"OOM ", Meaning{NotExecuted: true, Hint: "the server's memory is full: raise its maxmemory; releases still work"}},
	{"MISCONF ", Meaning{NotExecuted: true, Hint: "the server cannot save to disk and refuses writes: see its log"}},
	{"EXECABORT ", Meaning{NotExecuted: true}},
	{"NOAUTH ", Meaning{NotExecuted: true, Hint: hintPassword}},
	// The answer of a server with a password to a request of more than ten words.
	{"ERR Protocol error: unauthenticated", Meaning{NotExecuted: true, Hint: hintPassword}},
	{"WRONGPASS ", Meaning{NotExecuted: true, Hint: "check user and password, redis://user:password@host"}},
	{"WRONGTYPE ", Meaning{NotExecuted: true, Hint: "another program uses a key of this name: choose another name for the semaphore, or delete that key"}},
	{"CROSSSLOT ", Meaning{NotExecuted: true, Hint: hintSlots}},
	{"ERR DB index is out of range", Meaning{NotExecuted: true, Hint: "the server has no database of this number: use 0, or raise its databases"}},
	{"ERR invalid DB index", Meaning{NotExecuted: true, Hint: "the server has no database of this number: use 0"}},
	{"ERR SELECT is not allowed in cluster mode", Meaning{NotExecuted: true, Hint: HintCluster}},
	{"ERR This instance has cluster support disabled", Meaning{NotExecuted: true, Hint: "the server is no part of a cluster: use redis.NewClient, redis://"}},

	{"SEMAVERSION ", Meaning{Temporary: true, NotExecuted: true, Hint: "bring all programs that share the semaphore to one release, or wait until those of the other one have let go of it; what they hold counts, so delete nothing"}},

	// The rest may stop a script after its first write.
	{"ERR Script attempted to access", Meaning{Hint: hintSlots}}, // a key of another slot or node
	{"ERR The user executing the script", Meaning{Hint: hintRights}},
	{"NOPERM ", Meaning{Hint: hintRights}},
}

// Sort says what err means. It finds the error of go-redis or of the network
// through wrapping. Sort(nil) is the zero Meaning.
func Sort(err error) Meaning {
	reply, ok := errors.AsType[redis.Error](err)
	if errors.Is(err, ErrNode) {
		return Meaning{NotExecuted: true, Hint: HintCluster}
	}
	if err != nil && strings.Contains(err.Error(), "all sentinels specified in configuration") {
		// Sentinels that are there and answer something else keep to it.
		return Meaning{Temporary: !ok, NotExecuted: true, Hint: "see whether the addresses are those of the Sentinels, and the name is that of the master"}
	}
	if ok {
		for _, r := range replies {
			if strings.HasPrefix(reply.Error(), r.prefix) {
				return r.Meaning
			}
		}
		return Meaning{}
	}
	var connection *net.OpError
	var network net.Error
	var certificate *tls.CertificateVerificationError
	var address *net.AddrError
	var lookup *net.DNSError
	switch {
	case errors.As(err, &address), errors.As(err, &lookup) && lookup.Err == "unknown port":
		return Meaning{NotExecuted: true, Hint: hintAddress}
	case errors.As(err, new(tls.RecordHeaderError)):
		return Meaning{NotExecuted: true, Hint: HintNoTLS}
	case errors.As(err, &connection) && connection.Op == "dial":
		return Meaning{Temporary: true, NotExecuted: true, Busy: connection.Timeout(), Hint: "check that the server runs and the address is right"}
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return Meaning{Temporary: true, NotExecuted: true, Busy: true, Hint: HintPool}
	case errors.As(err, &certificate):
		return Meaning{NotExecuted: true, Hint: "the server's certificate is not trusted: see the go-redis client's TLSConfig"}
	case errors.Is(err, redis.ErrClosed):
		return Meaning{NotExecuted: true}
	case errors.Is(err, context.Canceled):
		return Meaning{}
	case errors.As(err, &network) && network.Timeout():
		return Meaning{Temporary: true, Busy: true, Hint: "check that the server runs and is not overloaded"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), network != nil:
		// With maxclients reached the server hangs up as well, mostly before
		// the client has read the words that say so.
		return Meaning{Temporary: true, Hint: "the server closed the connection: see whether it restarted, reached its maxclients, or wants TLS"}
	}
	return Meaning{}
}

// FromServer reports whether err is an error reply of the server. Errors of the
// connection are none, nor are go-redis's own redis.Nil and redis.TxFailedErr.
func FromServer(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && !strings.HasPrefix(reply.Error(), "redis: ")
}

// Mode is what a server says it is, such as "standalone", "cluster" or "sentinel". Any user may ask. A cluster of
// one node serves all names, so it has no mode.
func Mode(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	hello := redis.NewMapStringInterfaceCmd(ctx, "hello")
	if err := rdb.Process(ctx, hello); err != nil {
		return "", err
	}
	mode, _ := hello.Val()["mode"].(string)
	if mode == "cluster" {
		if info, _ := rdb.ClusterInfo(ctx).Result(); strings.Contains(info, "cluster_size:1\r") {
			mode = ""
		}
	}
	return mode, nil
}

// Fits fails if a client for one server is at a node of a cluster, where some names work and others do not, or if the
// server does not answer.
func Fits(ctx context.Context, rdb redis.UniversalClient) error {
	if _, ok := rdb.(*redis.ClusterClient); ok {
		return nil
	}
	switch mode, err := Mode(ctx, rdb); {
	case err != nil && (!FromServer(err) || Sort(err).Temporary):
		return err
	case mode == "cluster":
		return ErrNode
	}
	return nil
}
