package redisengine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
	"sema/internal/protocol"
)

// documented returns the match of pattern's first group in docs/redis.md.
func documented(t *testing.T, pattern string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "redis.md"))
	expect.OK(t, err)
	m := regexp.MustCompile(pattern).FindSubmatch(page)
	if m == nil {
		t.Fatalf("docs/redis.md has nothing like %s", pattern)
	}
	return string(m[1])
}

// documentedRights reads a user of docs/redis.md, who must have the rights to exactly the
// used commands.
func documentedRights(t *testing.T, user string, cluster bool) []string {
	t.Helper()
	text := documented(t, "(?ms)^ACL SETUSER "+user+" (.*?)\n```")
	listed := strings.Fields(strings.ReplaceAll(text, "\\\n", " "))
	var commands []string
	for _, word := range listed {
		if strings.HasPrefix(word, "+") {
			commands = append(commands, word)
		}
	}
	slices.Sort(commands)
	if used := rights(t, cluster); !slices.Equal(commands, used) {
		t.Errorf("docs/redis.md grants\n%v\nand used are\n%v", commands, used)
	}
	return listed
}

// createUser creates a user as docs/redis.md says: with the listed rights, and
// with one more on servers that know it.
func createUser(t *testing.T, rdb *redis.Client, user string, rights []string) {
	t.Helper()
	ctx := expect.Within(t)
	args := []any{"ACL", "SETUSER", user}
	for _, word := range rights {
		args = append(args, word)
	}
	added := documented(t, "On Redis or Valkey 7.2 and later, add `([^`]+)`")
	known, err := rdb.Do(ctx, "COMMAND", "INFO", strings.TrimPrefix(added, "+")).Slice()
	expect.OK(t, err)
	if known[0] != nil {
		args = append(args, added)
	}
	expect.OK(t, rdb.Do(ctx, args...).Err())
}

// rights are the rights to the commands that sema sends, and to those that its
// scripts call.
func rights(t *testing.T, cluster bool) []string {
	t.Helper()
	used := map[string]bool{"evalsha": true, "eval": true, "get": true, "scan": true, "ping": true, "hscan": true, "zmscore": true}
	flavour := []string{"publish", "subscribe", "unsubscribe", "pubsub|numsub"}
	if cluster {
		flavour = []string{"spublish", "ssubscribe", "sunsubscribe", "pubsub|shardnumsub", "cluster|slots", "command"}
	}
	for _, word := range flavour {
		used[word] = true
	}
	for _, script := range []string{"first", "plain", "rules", "rare", "store", "keys", "last", "state"} {
		lua, err := os.ReadFile(filepath.Join("lua", script+".lua"))
		expect.OK(t, err)
		for _, call := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(string(lua), -1) {
			if call[1] != "PUBSUB" {
				used[strings.ToLower(call[1])] = true
			}
		}
		for _, word := range regexp.MustCompile(`'([HZ][A-Z]{3,})'`).FindAllStringSubmatch(string(lua), -1) { // called by a variable
			used[strings.ToLower(word[1])] = true
		}
	}
	var list []string
	for word := range used {
		list = append(list, "+"+word)
	}
	slices.Sort(list)
	return list
}

// everything uses each ability of the engine, as two clients.
func everything(t *testing.T, client func() sema.Engine) {
	ctx := expect.Within(t)
	e := readBy(client(), 1) // so that states are read in parts
	s := openSem(t, e, "x", 2, &sema.Options{Slots: true, Label: "l"})
	other := openSem(t, client(), "x", 2, nil)
	p, q := acquire(t, s), acquire(t, other)
	w := queue(t, other)
	expect.OK(t, p.Renew(ctx))
	expect.OK(t, p.Release())
	next := w.permit(t)
	w = queue(t, s)
	expect.OK(t, operator(t, e, "x").Revoke(ctx, q.ID()))
	_ = q.Release()
	expect.OK(t, next.Release())
	expect.OK(t, w.permit(t).Release())
	expect.OK(t, operator(t, e, "x").Set(ctx, sema.Rule{Limit: 3}))
	if st := stateOf(t, s); st.Limit != 3 {
		t.Errorf("state %+v", st)
	}
	if names, err := e.List(ctx); err != nil || len(names) != 1 {
		t.Errorf("list: %v, %v", names, err)
	}
	expect.OK(t, operator(t, e, "x").Unset(ctx))
	late := session(t, e, "y")
	c := protocol.Call{Number: 2, Fence: true, Requests: []protocol.Request{late.request(protocol.Ask, 1, time.Minute)}}
	for range 2 {
		_, err := late.Step(whole, c)
		expect.OK(t, err)
	}
	late.number = 2
	late.do(late.request(protocol.Release, 1, 0))
	late.do(protocol.Request{Kind: protocol.Remove})
}

// deniedTo fails the test if the server refused the user anything.
func deniedTo(t *testing.T, rdb *redis.Client, user string) {
	t.Helper()
	log, err := rdb.ACLLog(expect.Within(t), 100).Result()
	expect.OK(t, err)
	for _, entry := range log {
		if entry.Username == user {
			t.Errorf("refused to %s: %s %s (%s)", user, entry.Reason, entry.Object, entry.Context)
		}
	}
}

// The rights that docs/redis.md names are exactly the used ones, and they
// suffice. Its short form suffices, too.
func TestMinimalRights(t *testing.T) {
	t.Parallel()
	for _, rights := range [][]string{documentedRights(t, "sema", false), {"on", ">secret", "~sema:*", "&sema:*", "+@all", "-@dangerous"}} {
		server := redistest.Start(t)
		rdb := server.Client()
		createUser(t, rdb, "sema", rights)
		everything(t, func() sema.Engine {
			return closing(t, connect(t, redis.Options{Addr: server.Addr(), Username: "sema", Password: "secret"}))
		})
		deniedTo(t, rdb, "sema")
	}
}

func TestMinimalRightsOnCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	listed := documentedRights(t, "sema-cluster", true)
	for _, node := range c.Nodes {
		createUser(t, node.Client(), "sema-cluster", listed)
	}
	everything(t, func() sema.Engine {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: "sema-cluster", Password: "secret"})
		t.Cleanup(func() { _ = rdb.Close() })
		return closing(t, rdb)
	})
	for _, node := range c.Nodes {
		deniedTo(t, node.Client(), "sema-cluster")
	}
}

// The error of a missing right comes at once, and says where the rights are
// listed.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	gate := acquire(t, openSem(t, engineAt(t, server.Addr()), "x", 1, nil))
	for user, rule := range map[string]string{"nokeys": "resetkeys", "noscripts": "-evalsha", "nochannels": "resetchannels"} {
		expect.OK(t, rdb.Do(ctx, "ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", rule).Err())
		stall.Run(t, func(c *stall.Case) {
			e := closing(c, connect(c, redis.Options{Addr: server.Addr(), Username: user, Password: "secret"}))
			wait, cancel := context.WithTimeout(ctx, 4*time.Second) // less than an unconfirmed subscription takes
			defer cancel()
			_, err := openSem(c, e, "x", 1, nil).Acquire(wait)
			engineError(c, err, "NOPERM", "docs/redis.md", user == "nochannels")
		})
	}
	expect.OK(t, gate.Release())
}

// A user without rights to the channels cannot notify a waiter of its permit.
// The step must still be written whole: the waiter learns of the permit when it
// asks again.
func TestAMuteUserKeepsTheLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	expect.OK(t, rdb.Do(expect.Within(t), "ACL", "SETUSER", "mute", "on", ">secret", "~sema:*", "+@all", "resetchannels").Err())
	mute := closing(t, connect(t, redis.Options{Addr: server.Addr(), Username: "mute", Password: "secret"}))
	o := &sema.Options{Lease: 10 * time.Second} // a waiter asks again after a third of it
	speechless, heavy := openSem(t, mute, "x", 2, o), openSem(t, engineAt(t, server.Addr()), "x", 2, o)
	a, b := acquire(t, speechless), acquire(t, speechless)
	waiter := queue(t, heavy, sema.Weight(2))
	expect.OK(t, a.Release())
	expect.OK(t, b.Release()) // hands over, without the right to publish
	if p, err := speechless.TryAcquire(expect.Within(t)); err == nil {
		t.Errorf("got %s beside a permit of the whole limit: %+v", p.ID(), stateOf(t, heavy))
	}
	expect.OK(t, waiter.permit(t).Release())
	wholeLimit(t, heavy, 2)
}

// startTLS starts a server that speaks nothing but TLS at the address, with a certificate of the pool.
func startTLS(t *testing.T) (addr string, pool *x509.CertPool) {
	t.Helper()
	cert, key, err := local.Certificate(t.TempDir())
	expect.OK(t, err)
	port := strconv.Itoa(redistest.FreePort(t))
	addr = net.JoinHostPort("127.0.0.1", port)
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	text, err := os.ReadFile(cert)
	expect.OK(t, err)
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return addr, pool
}

// TLS is the client's option. Calls and notifications both use it.
func TestTLS(t *testing.T) {
	t.Parallel()
	addr, pool := startTLS(t)
	everything(t, func() sema.Engine {
		return closing(t, connect(t, redis.Options{Addr: addr, TLSConfig: &tls.Config{RootCAs: pool}}))
	})
	plain := openSem(t, closing(t, connect(t, redis.Options{Addr: addr, TLSConfig: &tls.Config{}})), "x", 1, nil)
	if _, err := plain.TryAcquire(expect.Within(t)); err == nil {
		t.Error("a certificate of nobody's was trusted")
	}
}
