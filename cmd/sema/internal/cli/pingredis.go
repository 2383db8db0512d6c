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

// pingRedis asks a Redis or Valkey, in a cluster each master.
type pingRedis struct {
	pingLook
	at *openEngine
}

// rightsLua makes the calls of a list, and returns those that failed.
//
//go:embed rights.lua
var rightsLua string

// redisNeeds are the commands in the scripts of sema, by what they are for. $k begins
// keys and channels that nobody else uses.
var redisNeeds = []struct {
	what  string
	calls []string
}{
	{"keep semaphores", []string{
		"DEL $ks $kh $kz", // the first of all
		"TYPE $kh", "EXISTS $kh", "SET $ks 1", "GET $ks", "PEXPIRE $ks 60000", "PTTL $ks", "PERSIST $ks",
		"HSET $kh f 1", "HGET $kh f", "HMGET $kh f", "HGETALL $kh", "HKEYS $kh", "HLEN $kh", "HRANDFIELD $kh", "HSCAN $kh 0", "HDEL $kh f",
		"ZADD $kz 1 m", "ZCARD $kz", "ZCOUNT $kz 0 1", "ZRANGE $kz 0 0", "ZRANGEBYSCORE $kz 0 1", "ZRANK $kz m", "ZSCORE $kz m", "ZMSCORE $kz m",
		"ZRANGEBYLEX $kz - +", "ZREVRANGEBYLEX $kz + -", "ZLEXCOUNT $kz - +", "ZREVRANGE $kz 0 0", "ZREM $kz m",
	}},
	{"read the clock", []string{"TIME"}},
	{"publish", []string{"PUBLISH $kinbox x", "PUBSUB NUMSUB $kinbox"}},
}

// clusterPublish is in place of the last of redisNeeds, in a cluster.
var clusterPublish = []string{"SPUBLISH $kinbox x", "PUBSUB SHARDNUMSUB $kinbox"}

func (r *pingRedis) trip(ctx context.Context) error {
	err := r.at.redis.Ping(ctx).Err()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

func (r *pingRedis) checks(ctx context.Context) (version string, list []check) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return "", []check{checkOf("find the masters of the cluster", err)}
	}
	for _, node := range nodes {
		its := node.checks(ctx, r.at.replicas)
		version = node.version(ctx)
		for i := range its {
			if its[i].State != checkOK && len(nodes) > 1 {
				its[i].Detail = node.client.Options().Addr + ": " + its[i].Detail
			}
		}
		if list == nil {
			list = its
			continue
		}
		for i, c := range its { // of several, the first that is not ok
			if list[i].State == checkOK {
				list[i] = c
			}
		}
	}
	return version, list
}

// nodes are the masters.
func (r *pingRedis) nodes(ctx context.Context) (list []*redisNode, err error) {
	user, _, _ := strings.Cut(r.at.user, ":")
	user = cmp.Or(user, "default")
	if rdb, ok := r.at.redis.(*redis.Client); ok {
		return []*redisNode{{rdb, r.name, false, user}}, nil
	}
	cluster := r.at.redis.(*redis.ClusterClient)
	for i := range 1000 { // enough for all masters with a share of the slots
		name := fmt.Sprint(r.name, ".", i)
		master, err := cluster.MasterForKey(ctx, keyOf(name))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(list, func(n *redisNode) bool { return n.client == master }) {
			list = append(list, &redisNode{master, name, true, user})
		}
	}
	return list, nil
}

// redisNode is one server.
type redisNode struct {
	client  *redis.Client
	name    string // of a semaphore that nobody uses, and that it would keep
	cluster bool
	user    string
}

// keyOf begins the keys and channels of a semaphore.
func keyOf(name string) string { return "sema:{" + name + "}:" }

// checks are as many, in the same order, on each node.
func (n *redisNode) checks(ctx context.Context, replicas int) []check {
	list := n.scripts(ctx)
	list = append(list, n.subscribe(ctx), n.scan(ctx))
	if replicas > 0 {
		list = append(list, n.replicas(ctx, replicas))
	}
	return append(list, n.memory(ctx))
}

// scripts checks EVAL and EVALSHA, then what scripts may call.
func (n *redisNode) scripts(ctx context.Context) []check {
	needs := slices.Clone(redisNeeds)
	if n.cluster {
		needs[len(needs)-1].calls = clusterPublish
	}
	k := keyOf(n.name)
	var args []any
	for _, need := range needs {
		for _, call := range need.calls {
			args = append(args, strings.ReplaceAll(call, "$k", k))
		}
	}
	keys := []string{k + "s", k + "h", k + "z"}
	script := redis.NewScript(rightsLua)
	what := "run scripts"
	err := n.client.Eval(ctx, rightsLua, keys, args...).Err()
	var refused []any
	if err == nil {
		refused, err = n.client.EvalSha(ctx, script.Hash(), keys, args...).Slice()
	}
	if err != nil {
		command := "EVAL"
		if !redis.HasErrorPrefix(err, "NOPERM") || strings.Contains(err.Error(), "evalsha") {
			command = "EVALSHA"
		}
		list := []check{n.refused(what, []string{command}, []string{err.Error()})}
		for _, need := range needs {
			list = append(list, check{need.what, checkUnknown, "scripts do not run", ""})
		}
		return list
	}
	failed := map[string]string{} // by call
	for i := 0; i+1 < len(refused); i += 2 {
		call, _ := refused[i].(string)
		failed[strings.ReplaceAll(call, k, "$k")], _ = refused[i+1].(string)
	}
	list := []check{{What: what, State: checkOK}}
	for _, need := range needs {
		var calls, texts []string
		for _, call := range need.calls {
			if text, ok := failed[call]; ok {
				calls, texts = append(calls, commandOf(call)), append(texts, text)
			}
		}
		list = append(list, n.refused(need.what, calls, texts))
	}
	return list
}

// commandOf is the command of a call, with its subcommand.
func commandOf(call string) string {
	words := strings.Fields(call)
	if words[0] == "PUBSUB" {
		return words[0] + "|" + words[1]
	}
	return words[0]
}

// What servers say of a right that a user has not, in scripts as well.
var (
	denied        = regexp.MustCompile(`NOPERM|ACL failure in script|The user executing the script`)
	deniedChannel = regexp.MustCompile(`(access|publish) .*\bchannels?\b`)
	deniedKey     = regexp.MustCompile(`access .*\bkeys?\b`)
)

// refused is the check of commands that the server refused, with the texts of its errors; ok if there are none.
func (n *redisNode) refused(what string, commands, texts []string) check {
	if len(commands) == 0 {
		return check{What: what, State: checkOK}
	}
	c := check{What: what, State: checkMissing, Detail: strings.Join(commands, ", ") + ": " + texts[0]}
	var grants []string
	for i, text := range texts {
		grant := "+" + strings.ToLower(commands[i])
		switch {
		case !denied.MatchString(text):
			c.Try = rediserror.Sort(reply(text)).Hint
			return c
		case deniedChannel.MatchString(text):
			grant = "'&sema:*'"
		case deniedKey.MatchString(text):
			grant = "'~sema:*'"
		}
		if !slices.Contains(grants, grant) {
			grants = append(grants, grant)
		}
	}
	c.Try = "ACL SETUSER " + quote(n.user) + " " + strings.Join(grants, " ") + "; docs/redis.md has all rights"
	return c
}

// reply is an error of the server as a script caught it.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError marks it as go-redis marks errors of the server.
func (reply) RedisError() {}

// direct is a check of one command outside of scripts.
func (n *redisNode) direct(what, command string, err error) check {
	if err == nil {
		return check{What: what, State: checkOK}
	}
	if !rediserror.FromServer(err) {
		return check{what, checkMissing, command + ": " + err.Error(), rediserror.Sort(err).Hint}
	}
	return n.refused(what, []string{command}, []string{err.Error()})
}

func (n *redisNode) subscribe(ctx context.Context) check {
	channel := keyOf(n.name) + "inbox"
	command := "SUBSCRIBE"
	s := n.client.Subscribe(ctx)
	defer func() { _ = s.Close() }() // the answer is there
	ask, end := s.Subscribe, s.Unsubscribe
	if n.cluster {
		command, ask, end = "SSUBSCRIBE", s.SSubscribe, s.SUnsubscribe
	}
	err := ask(ctx, channel)
	if err == nil {
		_, err = s.ReceiveTimeout(ctx, 3*time.Second)
	}
	if err == nil {
		command = strings.Replace(command, "SUB", "UNSUB", 1)
		if err = end(ctx, channel); err == nil {
			_, err = s.ReceiveTimeout(ctx, 3*time.Second)
		}
	}
	return n.direct("subscribe", command, err)
}

func (n *redisNode) scan(ctx context.Context) check {
	c := n.direct("list semaphores", "SCAN", n.client.Scan(ctx, 0, "sema:{*}:state", 1).Err())
	if c.State == checkMissing {
		c.State = checkRisk // sema run works
	}
	return c
}

// replicas checks that as many answer as the URL wants.
func (n *redisNode) replicas(ctx context.Context, want int) check {
	what := fmt.Sprintf("reach %d replicas", want)
	have, err := n.client.Wait(ctx, want, 500*time.Millisecond).Result()
	if err != nil || int(have) >= want {
		return n.direct(what, "WAIT", err)
	}
	return check{what, checkMissing, fmt.Sprintf("%d answered", have), "see whether the replicas are there and keep up, or a smaller ?replicas="}
}

// memory checks that the server evicts no semaphore.
func (n *redisNode) memory(ctx context.Context) check {
	const what = "keep semaphores when the memory is full"
	info, err := n.client.InfoMap(ctx, "memory").Result()
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

// version is the name and version of the server; "" if it does not tell them.
func (n *redisNode) version(ctx context.Context) string {
	if info, err := n.client.InfoMap(ctx, "server").Result(); err == nil {
		server := info["Server"]
		switch { // Valkey calls itself Redis 7.2.4 as well
		case server["valkey_version"] != "":
			return "Valkey " + server["valkey_version"]
		case server["redis_version"] != "":
			return "Redis " + server["redis_version"]
		}
	}
	hello := redis.NewMapStringInterfaceCmd(ctx, "HELLO") // every user may say it
	_ = n.client.Process(ctx, hello)
	if version, ok := hello.Val()["version"].(string); ok {
		return "Redis " + version
	}
	return ""
}
