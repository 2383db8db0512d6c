package redisengine

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// The scripts under test read their clock from a key, so that both sides see the
// same time. The test decides which clients are subscribed, and reads the
// published messages.
var forTest = strings.NewReplacer(
	"local clock = redis.call('TIME')\nlocal now = clock[1] * 1000000 + clock[2]\n", "local now = tonumber(redis.call('GET', 'now'))\n",
	"redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', s.inbox .. who)", "{'', redis.call('SISMEMBER', 'dead', who) == 1 and 0 or 1}",
	"redis.call('PUBSUB', string.byte(caller) == 115 and 'SHARDNUMSUB' or 'NUMSUB', inbox .. caller)", "{'', redis.call('SISMEMBER', 'dead', caller) == 1 and 0 or 1}",
	"redis.pcall(string.byte(who) == 115 and 'SPUBLISH' or 'PUBLISH', s.inbox .. who, message)", "redis.call('RPUSH', 'published', who, message)",
	"  if status then\n    if told", "  if status then\n    if keyed then redis.call('INCR', 'fast') end\n    if told",
)

const (
	// countLua returns the counters of the script and the counted values: weight,
	// tickets, and entries of the state. The last value names the keys whose record has
	// another weight or another number of tickets than the entries of them and of those below them.
	countLua = `local raw = redis.call('HGET', KEYS[1], '')
		if not raw then
			local left = {} -- other keys may end later, but each must end
			for k = 1, 9 do
				if k ~= 5 and redis.call('PTTL', KEYS[k]) == -1 then left[#left + 1] = KEYS[k] .. ' for ever' end
			end
			return {0, 0, 0, 0, {}, left}
		end
		local _, limit, used, _, keep, _, _, _, queued = struct.unpack(STATE, raw)
		if keep <= tonumber(redis.call('GET', 'now')) then return {0, 0, 0, 0, {}, {}} end -- the next step takes the rest for gone
		local held, wrong, records, stored, ready, over = {}, {}, redis.call('HGETALL', KEYS[8]), {}, 0, 0 -- without those of the server, keys are 8
		for k = 1, #records, 2 do stored[records[k]] = records[k + 1] end
		local entries = records[1] and redis.call('HGETALL', KEYS[1]) or {}
		local function inner(name) return stored[name] and string.byte(stored[name], 33) % 4 >= 2 end
		for k = 1, #entries, 2 do
			local id, value = entries[k], entries[k + 1]
			local first = id ~= '' and string.byte(value) or 0
			local size = (first == TICKETED or first == 81) and TICKET_SIZE or PERMIT_SIZE
			local key = first >= 97 and '' or first > 0 and string.sub(value, size + 1, string.find(value, '\0', size + 1, true) - 1)
			local at, lane = 0, ''
			key = key and string.match(key, '^[^\3]*')
			if key and string.find(key, '\2', 1, true) then
				key, lane = string.match(key, '^(.*)\2(.*)$')
				lane = string.gsub(lane, '=%d+', '') .. '\2'
			end
			while key and at do
				at = string.find(key, '\1', at + 1, true)
				local parts = {at and string.sub(key, 1, at - 1) or key}
				if not at and inner('k' .. key) then parts[2] = key .. '\1' end
				for _, part in ipairs(parts) do
					local sum, of = held['k' .. part] or {0, 0, 0}, held['k' .. lane .. part] or {0, 0, 0}
					held['k' .. part] = sum
					if size == PERMIT_SIZE then
						sum[1] = sum[1] + string.match(id, '%d+$')
					elseif lane == '' then
						sum[2] = sum[2] + 1
					else
						held['k' .. lane .. part], of[2], sum[3] = of, of[2] + 1, sum[3] + 1
					end
				end
			end
		end
		for name, record in pairs(stored) do
			local sum, has, n, _, _, bits, where = held[name] or {0, 0, 0}, 0, 0, nil, nil, 2, 0
			if name ~= '' then has, n, _, _, bits, where = struct.unpack('<ddddBB', record) end
			local others = tonumber(string.match(string.sub(record, KEY_SIZE + 1), '%z(%d+) ') or 0)
			if name ~= '' and (has ~= sum[1] or n ~= sum[2] or others ~= sum[3]) then wrong[#wrong + 1] = name .. ' ' .. has .. '/' .. sum[1] .. ' ' .. n .. '/' .. sum[2] .. ' ' .. others .. '/' .. sum[3] end
			if bits >= 4 and not string.find(name, '\2', 1, true) then over = over + 1 end
			if where == 1 and not inner('k' .. string.match(name, '([^\2]*)$')) and not inner(name) then ready = ready + 1 end
			held[name] = nil
		end
		for name in pairs(held) do wrong[#wrong + 1] = name end
		if stored[''] and struct.unpack('<d', stored[''], 65) ~= ready then wrong[#wrong + 1] = 'leaves in turn' end
		if stored[''] and struct.unpack('<d', stored[''], 73) ~= over then wrong[#wrong + 1] = 'keys over their caps' end
		return {used, queued, redis.call('HLEN', KEYS[1]) - 1, redis.call('ZCARD', KEYS[3]) + redis.call('ZCARD', KEYS[9]), redis.call('ZRANGE', KEYS[2], 0, -1), wrong}`

	// clockLua makes times to live end by the clock of the test: for the server they end some thirty years later. A sequence
	// may take the server minutes.
	clockLua = `local server = redis
		local function zero() return 1e12 + math.floor(server.call('GET', 'now') / 1000) end
		local redis = setmetatable({call = function(command, ...)
			local key, value, how, ms = ...
			if command == 'PEXPIRE' then return server.call('PEXPIREAT', key, zero() + value) end
			if command == 'SET' and how == 'PX' then return server.call('SET', key, value, 'PXAT', zero() + ms) end
			if command ~= 'PTTL' then return server.call(command, ...) end
			local ends = server.call('pexpiretime', key)
			return ends < 0 and ends or ends - zero()
		end}, {__index = server})
		`

	// passLua deletes the keys whose time to live has ended.
	passLua = clockLua + `for _, key in ipairs(redis.call('KEYS', '*')) do
			local left = redis.call('PTTL', key)
			if left ~= -1 and left <= 0 then redis.call('DEL', key) end
		end`
)

// bench is a server with the scripts, and counts the rare cases that the tests
// met there.
type bench struct {
	rdb                      *redis.Client
	step, state, count, pass string // hashes
	*met
}

// met counts cases that a few clients hardly ever meet.
type met struct {
	turns, ends, told atomic.Int64 // steps that met MAX_BUDGET, MAX_ENDS, MAX_TOLD
	forgotten         atomic.Int64 // semaphores, with their limit
	fences            atomic.Int64 // calls that a fence would have refused, but it had ended
	described         atomic.Int64 // calls with a description of their client
	fast              atomic.Int64 // calls about keys that took the fast path
	wouldWait         atomic.Int64 // permits that would have waited, for a limit that is only watched
}

// ofAmericans returns an environment with an American locale: there Lua compares strings differently from zsets, which
// compare bytes. Many servers run so. It is empty if the locale cannot be made; make check installs its tools. The locale is
// made once on a machine, which takes seconds.
var ofAmericans = sync.OnceValue(func() []string {
	dir := filepath.Join(os.TempDir(), "sema-locales")
	if _, err := os.Stat(dir); err != nil {
		mine, err := os.MkdirTemp("", "sema-locales-")
		if err != nil {
			return nil
		}
		defer func() { _ = os.RemoveAll(mine) }() // if another process was first
		if exec.Command("localedef", "-i", "en_US", "-f", "UTF-8", filepath.Join(mine, "en_US.UTF-8")).Run() != nil {
			return nil
		}
		_ = os.Rename(mine, dir)
	}
	return []string{"LOCPATH=" + dir, "LC_ALL=en_US.UTF-8"}
})

func newBench(t *testing.T, m *met) *bench {
	socket := filepath.Join(t.TempDir(), "s")
	redistest.StartEnv(t, ofAmericans(), "--unixsocket", socket)
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: 2, ReadTimeout: expect.Patience})
	t.Cleanup(func() { _ = rdb.Close() })
	b := &bench{rdb: rdb, met: m}
	source, _ := step()
	run, state := clockLua+forTest.Replace(source.(string)), forTest.Replace(lua("layout")+lua("state"))
	if !strings.Contains(run, "'fast'") || strings.Contains(run, "PUBSUB") || strings.Contains(run, "PUBLISH'") || strings.Contains(run+state, "TIME'") {
		t.Fatal("the script has changed: its clock or its messages no longer come from here")
	}
	for source, hash := range map[string]*string{run: &b.step, state: &b.state, lua("layout") + countLua: &b.count, passLua: &b.pass} {
		var err error
		*hash, err = rdb.ScriptLoad(context.Background(), source).Result()
		expect.OK(t, err)
	}
	return b
}

// The proof of the Lua: for any calls, in any order and at any time, the script
// answers and acts as the ledger does. Two judges run, each for -rapid.checks
// sequences of calls.
func TestScriptAgreesWithLedger(t *testing.T) {
	t.Parallel()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		expect.OK(t, checks.Value.Set(strconv.Itoa(agreeChecks)))
	}
	var m met
	few := flag.Lookup("rapid.checks").Value.(flag.Getter).Get().(int) < 5000
	t.Run("both", func(t *testing.T) {
		for range 2 { // while one waits for the server, the other one draws calls
			t.Run("", func(t *testing.T) {
				t.Parallel()
				b := newBench(t, &m)
				rapid.Check(t, b.check)
			})
		}
	})
	for what, n := range map[string]*atomic.Int64{
		"as many tickets as a step takes off": &m.turns, "more leases that end than a step ends": &m.ends, "as many keepers as a step tells": &m.told,
		"a semaphore that was forgotten": &m.forgotten, "a fence that has ended": &m.fences, "a description": &m.described,
		"the fast path of keys": &m.fast, "a permit that would have waited": &m.wouldWait,
	} {
		t.Logf("%s: %d times", what, n.Load())
		if n.Load() == 0 && !few {
			t.Errorf("never met: %s", what)
		}
	}
}

func (b *bench) check(t *rapid.T) {
	j := newJudge(b, one(t, 32, "crowd"))
	if one(t, 2, "keys") {
		j.names = []string{"", "a", "b", "ab", "\u00ff\U0010ffff"}[rapid.IntRange(0, 3).Draw(t, "first"):]
		if one(t, 2, "paths") {
			j.names = []string{"", "b", "a", "a\x01x", "a\x01\U0010ffff", "a\x01x\x01m", "b\x01" + strings.Repeat("k", engine.MaxKey-2)}[rapid.IntRange(0, 4).Draw(t, "first path"):]
		}
	}
	if len(j.names) > 0 && one(t, 2, "pools") {
		j.takes = []engine.Pools{"", "", "GPU=1", "GPU=2", "db=1", "GPU=1,db=1", "GPU=1,db=3"}
		j.there = []engine.Pools{"GPU=2,db=2", "GPU=2,db=2", "GPU=2,db=3", "GPU=3,db=1", "GPU=1", ""}
		if one(t, 2, "rates") {
			j.there = []engine.Pools{"GPU=2,db=2/3s", "GPU=2,db=2/3s", "GPU=2,db=3+7/1m", "GPU=3/900ms,db=4+1/7s", "GPU=90/1h,db=80/10m", "GPU=90/1h,db=80/10m", "GPU=1", ""}
		}
		if one(t, 4, "many sets") { // more than may wait
			j.takes, j.there = nil, []engine.Pools{"GPU=1,a=1,b=1,c=1,d=1"}
			for bits := range 32 {
				takes := map[string]int{}
				for i, pool := range []string{"GPU", "a", "b", "c", "d"} {
					if bits>>i%2 == 1 {
						takes[pool] = 1
					}
				}
				set, _ := engine.NewPools(takes, 1)
				j.takes = append(j.takes, set)
			}
		}
	}
	if len(j.names) > 0 && j.crowded() {
		j.names = nil
		for n := range 200 { // more than a step looks at
			j.names = append(j.names, fmt.Sprintf("org%d\x01user%d", n%3, n))
		}
	} else if len(j.names) > 0 && one(t, 2, "calm") {
		j.calm, j.names = true, append(slices.Clone(j.names), "")
	}
	actions := map[string]func(*rapid.T){
		"":      j.look,
		"call":  j.both,
		"call2": j.both,
		"call3": j.both,
		"time":  j.time,
		"die":   j.die,
	}
	if j.crowded() {
		actions["all"], actions["all2"], actions["open"] = j.all, j.all, j.open
	}
	t.Repeat(actions)
	j.sync(t)
	fast, _ := j.rdb.Get(context.Background(), "fast").Int64() // none: 0
	j.fast.Add(fast)
	if one(t, 4, "parts") {
		j.whole(t)
	}
}

// judge runs the same calls on the ledger and on the script. The script's calls
// wait in a pipeline, because only the ledger's replies decide the next calls.
type judge struct {
	*bench
	keys     keys
	ledger   ledger.Ledger
	now      int64
	calls    uint64
	number   uint64
	clients  []string
	sessions map[string]*session           // of each client
	known    []engine.ID                   // ids that were used
	last     map[string]engine.ID          // of each client: the id in the last call of all
	asked    map[engine.ID]protocol.Target // the target of each id that was asked for
	others   map[engine.ID]bool            // permits that another client asked for or renewed
	dead     map[string]bool               // clients without a subscription
	names    []string                      // of keys; empty: a semaphore without keys
	takes    []engine.Pools                // of pools; empty: there are none
	there    []engine.Pools                // how much there may be of each
	calm     bool                          // most calls have one request, and most of these can be granted: the world of the fast path
	keeps    map[string]keeping            // the right that each client has
	fences   map[string]fencing            // the fence that each client raised
	looks    int                           // actions since the state was compared
	revoked  engine.ID                     // what was last to be revoked
	pipe     redis.Pipeliner
	verdicts []func(failer) // checks of the replies to the pipeline
}

// failer is a test, or an attempt of package rapid.
type failer interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type keeping struct {
	may bool
	end int64
}

type fencing struct {
	number uint64
	end    int64
}

func newJudge(b *bench, crowd bool) *judge {
	j := &judge{
		bench: b, keys: keysOf(defaultPrefix, "x"), now: time.Now().UnixMicro(), clients: []string{"pa.1", "pb.1", "pc.1"},
		sessions: map[string]*session{}, asked: map[engine.ID]protocol.Target{}, last: map[string]engine.ID{}, others: map[engine.ID]bool{},
		dead: map[string]bool{}, keeps: map[string]keeping{}, fences: map[string]fencing{}, pipe: b.rdb.Pipeline(),
	}
	if crowd {
		j.clients = nil
		for n := range 200 {
			j.clients = append(j.clients, "p"+strconv.Itoa(n)+".1")
		}
	}
	for n, client := range j.clients {
		j.sessions[client] = &session{id: client, words: words{who: text(describer(n))}}
	}
	j.ledger = ledger.Ledger{MostEnds: 128, Reach: func(client string) bool { return !j.dead[client] }}
	j.pipe.FlushDB(context.Background())
	return j
}

func (j *judge) crowded() bool { return len(j.clients) > 3 }

// sync sends the pipeline to the script, and compares the replies.
func (j *judge) sync(t failer) {
	_, _ = j.pipe.Exec(context.Background()) // each command has its error
	verdicts := j.verdicts
	j.verdicts = nil
	for _, verdict := range verdicts {
		verdict(t)
	}
}

// die ends the subscriptions of one client or of many.
func (j *judge) die(t *rapid.T) {
	from, n := rapid.IntRange(0, len(j.clients)-1).Draw(t, "client"), 1
	if j.crowded() && one(t, 4, "many die") {
		n = 50
	}
	for _, client := range j.clients[from:min(from+n, len(j.clients))] {
		j.dead[client] = true
		j.pipe.SAdd(context.Background(), "dead", client)
	}
}

func (j *judge) lives(client string) {
	delete(j.dead, client)
	j.pipe.SRem(context.Background(), "dead", client)
}

// step carries out one call on both sides and compares replies and notifications.
// It returns the ledger's reply.
func (j *judge) step(client string, c protocol.Call) protocol.Reply {
	ctx := context.Background()
	now, s := j.now, j.sessions[client]
	j.notice(client, c)
	described := s.describe(time.UnixMicro(now), c)
	want := j.ledger.Step(now, client, describer(j.place(client)), c)
	wantTold := map[string]protocol.Notification{}
	for other, n := range j.ledger.Notifications() {
		if !n.Empty() {
			wantTold[other] = *n
		}
	}
	late := len(c.Requests) > 0 && want.Answers == nil
	j.noticed(client, c, late, want, wantTold)
	if late {
		described = 0 // a late call may send it or not
	} else if described > 0 {
		s.describedUntil = time.UnixMicro(now).Add(described)
		j.described.Add(1)
	}

	w := words{keys: j.keys, client: client, who: s.words.who, keyed: len(j.names) > 0}
	args := w.encode(c, described)
	args[0], args[1] = "evalsha", j.bench.step
	j.pipe.Set(ctx, "now", now, 0)
	reply := j.pipe.Do(ctx, args...)
	published := j.pipe.LRange(ctx, "published", 0, -1)
	j.pipe.Del(ctx, "published")
	keeps := map[string]keeping(nil)
	if recalled(wantTold) == mostTold {
		keeps = maps.Clone(j.keeps)
	}
	j.verdicts = append(j.verdicts, func(t failer) {
		text, err := reply.Text()
		if err != nil {
			t.Fatalf("%s at %d: %+v: %v", client, now, c, err)
		}
		got, err := decode(text, len(c.Requests))
		if err != nil && err != errFenced {
			t.Fatal(err)
		}
		told := map[string]protocol.Notification{}
		for i := 0; i < len(published.Val()); i += 2 {
			told[published.Val()[i]] = parseNotification(published.Val()[i+1])
		}
		if !sameReply(got, want) {
			t.Fatalf("%s at %d: %+v\nscript %+v\nledger %+v", client, now, c, got, want)
		}
		if keeps != nil {
			someKeepers(t, now, told, wantTold, keeps)
		}
		if !maps.EqualFunc(told, wantTold, sameNews) {
			t.Fatalf("%s at %d: %+v told\nscript %+v\nledger %+v", client, now, c, told, wantTold)
		}
	})
	return want
}
