package cli

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/rediserror"
)

// rightsLua makes the calls of a list, and returns those that failed.
//
//go:embed rights.lua
var rightsLua string

// redisCalls are the commands in the scripts of sema. $k begins keys and channels that
// nobody else uses.
var redisCalls = []string{
	"DEL $ks $kh $kz", // the first of all
	"TYPE $kh", "EXISTS $kh", "SET $ks 1", "GET $ks", "PEXPIRE $ks 60000", "PTTL $ks", "PERSIST $ks",
	"HSET $kh f 1", "HGET $kh f", "HMGET $kh f", "HGETALL $kh", "HKEYS $kh", "HLEN $kh", "HRANDFIELD $kh", "HSCAN $kh 0", "HDEL $kh f",
	"ZADD $kz 1 m", "ZCARD $kz", "ZCOUNT $kz 0 1", "ZRANGE $kz 0 0", "ZRANGEBYSCORE $kz 0 1", "ZRANK $kz m", "ZSCORE $kz m", "ZMSCORE $kz m",
	"ZRANGEBYLEX $kz - +", "ZREVRANGEBYLEX $kz + -", "ZLEXCOUNT $kz - +", "ZREVRANGE $kz 0 0", "ZREM $kz m", "TIME",
}

// pingRedis asks a Redis or Valkey, in a cluster each master.
func pingRedis(ctx context.Context, at *openEngine, name string) (version string, list []check) {
	user, _, _ := strings.Cut(at.user, ":")
	need := redisNeeds{user: cmp.Or(user, "default"), replicas: at.replicas}
	if rdb, ok := at.redis.(*redis.Client); ok {
		return redisVersion(ctx, rdb), need.of(ctx, rdb, keyOf(name))
	}
	cluster, seen := at.redis.(*redis.ClusterClient), map[*redis.Client]bool{}
	need.cluster = true
	for i := range 1000 { // enough for all masters with a share of the slots
		k := keyOf(fmt.Sprint(name, ".", i))
		master, err := cluster.MasterForKey(ctx, k)
		if err != nil {
			return "", []check{checkOf("find the masters of the cluster", err)}
		}
		if seen[master] {
			continue
		}
		seen[master], version = true, redisVersion(ctx, master)
		for j, c := range need.of(ctx, master, k) {
			if c.State != checkOK {
				c.Detail = master.Options().Addr + ": " + c.Detail
			}
			if j == len(list) {
				list = append(list, c)
			} else if list[j].State == checkOK { // of several, the first that is not ok
				list[j] = c
			}
		}
	}
	return version, list
}

// keyOf begins the keys and channels of a semaphore.
func keyOf(name string) string { return "sema:{" + name + "}:" }

// redisVersion is the name and version of the server; "" if it does not tell them.
func redisVersion(ctx context.Context, rdb *redis.Client) string {
	hello := redis.NewMapStringInterfaceCmd(ctx, "HELLO") // every user may say it
	_ = rdb.Process(ctx, hello)
	server, _ := hello.Val()["server"].(string)
	if server == "" {
		return ""
	}
	return fmt.Sprint(strings.ToUpper(server[:1]), server[1:], " ", hello.Val()["version"])
}

// redisNeeds is what sema needs of a server.
type redisNeeds struct {
	user     string
	cluster  bool
	replicas int
}

// of are the checks of one server, as many in the same order for each; k begins keys of it.
func (r redisNeeds) of(ctx context.Context, rdb *redis.Client, k string) []check {
	scan := r.refused("list semaphores", []refusal{{"SCAN", rdb.Scan(ctx, 0, "sema:{*}:state", 1).Err()}})
	if scan.State == checkMissing {
		scan.State = checkRisk // sema run works
	}
	list := []check{r.refused("use the commands of sema", append(r.scripts(ctx, rdb, k), r.subscribe(ctx, rdb, k)...)), scan, memoryOf(ctx, rdb)}
	if r.replicas > 0 {
		have, err := rdb.Wait(ctx, r.replicas, 500*time.Millisecond).Result()
		c := r.refused(fmt.Sprintf("reach %d replicas", r.replicas), []refusal{{"WAIT", err}})
		if err == nil && int(have) < r.replicas {
			c.State, c.Detail, c.Try = checkMissing, fmt.Sprintf("%d answered", have), "see whether the replicas are there and keep up, or a smaller ?replicas="
		}
		list = append(list, c)
	}
	return list
}

// refusal is a command, and the error that came of it, if any.
type refusal struct {
	command string
	err     error
}

// scripts runs scripts, with the commands in them.
func (r redisNeeds) scripts(ctx context.Context, rdb *redis.Client, k string) []refusal {
	calls := append(slices.Clone(redisCalls), "PUBLISH $kinbox x", "PUBSUB NUMSUB $kinbox")
	if r.cluster {
		calls = append(slices.Clone(redisCalls), "SPUBLISH $kinbox x", "PUBSUB SHARDNUMSUB $kinbox")
	}
	var args []any
	for _, call := range calls {
		args = append(args, strings.ReplaceAll(call, "$k", k))
	}
	keys := []string{k + "s", k + "h", k + "z"}
	if err := rdb.Eval(ctx, rightsLua, keys).Err(); err != nil { // it is loaded then
		return []refusal{{"EVAL", err}}
	}
	failed, err := rdb.EvalSha(ctx, redis.NewScript(rightsLua).Hash(), keys, args...).StringSlice()
	list := []refusal{{"EVALSHA", err}}
	for i := 0; i+1 < len(failed); i += 2 {
		words := strings.Fields(failed[i])
		command := words[0]
		if command == "PUBSUB" {
			command += "|" + words[1]
		}
		list = append(list, refusal{command, reply(failed[i+1])})
	}
	return list
}

func (r redisNeeds) subscribe(ctx context.Context, rdb *redis.Client, k string) []refusal {
	s := rdb.Subscribe(ctx)
	defer func() { _ = s.Close() }() // the answer is there
	prefix, ask, end := "", s.Subscribe, s.Unsubscribe
	if r.cluster {
		prefix, ask, end = "S", s.SSubscribe, s.SUnsubscribe
	}
	for _, one := range []struct {
		command string
		call    func(context.Context, ...string) error
	}{{"SUBSCRIBE", ask}, {"UNSUBSCRIBE", end}} {
		err := one.call(ctx, k+"inbox")
		if err == nil {
			_, err = s.ReceiveTimeout(ctx, 3*time.Second)
		}
		if err != nil {
			return []refusal{{prefix + one.command, err}}
		}
	}
	return nil
}

// denied is what servers say of a right that a user has not, in scripts as well.
var denied = regexp.MustCompile(`NOPERM|ACL failure in script|The user executing the script`)

// refused is the check of commands that the server may have refused.
func (r redisNeeds) refused(what string, list []refusal) check {
	list = slices.DeleteFunc(list, func(one refusal) bool { return one.err == nil })
	if len(list) == 0 {
		return check{What: what, State: checkOK}
	}
	var commands []string
	for _, one := range list {
		if text := one.err.Error(); !denied.MatchString(text) {
			return check{what, checkMissing, one.command + ": " + text, rediserror.Sort(one.err).Hint}
		}
		commands = append(commands, one.command)
	}
	grant := "ACL SETUSER " + quote(r.user) + " '~sema:*' '&sema:*' +" + strings.ToLower(strings.Join(commands, " +"))
	return check{what, checkMissing, strings.Join(commands, ", ") + ": " + list[0].err.Error(), grant + "; docs/redis.md has all rights"}
}

// reply is an error of the server as a script caught it.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError marks it as go-redis marks errors of the server.
func (reply) RedisError() {}

// memoryOf checks that the server evicts no semaphore.
func memoryOf(ctx context.Context, rdb *redis.Client) check {
	const what = "keep semaphores when the memory is full"
	info, err := rdb.InfoMap(ctx, "memory").Result()
	memory := info["Memory"]
	policy := memory["maxmemory_policy"]
	switch {
	case err != nil || policy == "":
		return check{what, checkUnknown, "the server does not tell its maxmemory-policy", "ask an administrator: it has to be noeviction"}
	case policy != "noeviction" && memory["maxmemory"] != "0":
		return check{what, checkRisk, "maxmemory-policy is " + policy + ": the server may evict semaphores", "CONFIG SET maxmemory-policy noeviction"}
	}
	return check{What: what, State: checkOK, Detail: "maxmemory-policy " + policy}
}
