package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pipenet"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/wire"
	"sema/server"
)

const acquireX = "/v1/semaphores/x/permits/a"

func TestWrongBodies(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		for _, body := range []string{
			"{", "[]", "null x", `"x"`, "12", `{"limit":"1"}`, `{"limit":1.5}`, `{"limit":0}`, `{"limit":-1}`, `{"limit":99999999999}`,
			`{"limit":1,"weight":-1}`, `{"limit":1,"lease_seconds":0}`, `{"limit":1,"lease_seconds":1e300}`, `{"limit":1,"wait_seconds":-1}`,
			`{"limit":1,"limit":2}`, `{"limit":1,"LIMIT":2}`, `{"Limit":1}`, `{"limit":1,"ſlot":true}`, `{"limit":1,"limit":1}`,
			`{"limit":1,"wait_seconds":1e9}`, `{"limit":1,"label":"a\nb"}`, `{"limit":1,"unknown":1}`, `{"limit":1}{"limit":1}`, `{}`, "null",
			`{"limit":1,"label":"` + strings.Repeat("x", 256) + `"}`, "\xff\xfe", strings.Repeat("[", 10_000),
			`{"limit":1,"Limit":2}`, `{"LIMIT":1}`, `{"limit":1,"\u006cimit":2}`, `{"limit":1,"weight":0}`, `{"limit":1,"weight":null}`, `{"limit":1,"slot":null}`, `{"limit":null}`,
			`{"limit":1,"label":"` + "\xff" + `"}`, `{"limit":1,"weight":1.5}`, `{"limit":2147483648}`, `{"limit":1,"label":["a"]}`, `{"limit":1,"label":{"a":"b"}}`, `{"limit":1}]`,
		} { // the OpenAPI description forbids them all, also where encoding/json does not
			h.want(400, "PUT", acquireX, body)
			h.want(400, "POST", "/v1/semaphores/x/hold", body)
		}
		h.want(400, "POST", acquireX+"/renew", `null`)
		h.want(400, "POST", acquireX+"/renew", `{"lease_seconds":null}`)
		h.want(400, "PUT", "/v1/semaphores/x/limit", `{"limit":1,"limit":1}`)
		for _, query := range []string{"?max=", "?max=0", "?max=%2B5", "?max=1.0", "?max=1001"} {
			h.want(400, "GET", "/v1/semaphores"+query, ``)
		}
		h.want(400, "GET", "/v1/events?name=", ``)
		h.want(413, "PUT", acquireX, `{"label":"`+strings.Repeat("x", 10<<20)+`"}`)
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "nonsense;;"} {
			h.want(415, "PUT", acquireX, `{"limit":1}`, "Content-Type", kind)
		}
		expect.Has(t, h.want(400, "PUT", "/v1/semaphores/x/limit", `{"limit":0}`).body, "pause")
		for _, path := range []string{acquireX, "/v1/semaphores/x/limit"} {
			expect.Has(t, h.want(400, "PUT", path, `{}`).body, "is missing")
		}
		h.want(400, "PUT", "/v1/semaphores/x/permits/"+strings.Repeat("i", 129), `{"limit":1}`)
		h.want(400, "PUT", "/v1/semaphores/x/permits/"+url.PathEscape("a\nb"), `{"limit":1}`)
		h.want(405, "PATCH", "/v1/semaphores/x", ``)
		h.want(404, "GET", "/v2/semaphores", ``)
		if names, err := h.engine.List(context.Background()); err != nil || len(names) != 0 {
			t.Errorf("a semaphore was created: %v, %v", names, err)
		}
		for i, body := range []string{
			`{"limit":9.0}`, `{"limit":9e0,"weight":1.0}`, ` {"limit" : 9, "label":"\ud83d\ude00" } `, `{"limit":9,"lease_seconds":1e2,"wait_seconds":0.0}`,
		} {
			h.want(200, "PUT", fmt.Sprint("/v1/semaphores/x/permits/", i), body)
		}
		h.want(204, "PUT", "/v1/semaphores/x/limit", `{"limit":3600.0}`)
		h.want(404, "POST", "/v1/semaphores/x/holders/0/revoke", ``) // no permit can have this id
		h.want(404, "DELETE", "/v1/semaphores/x/holders/%04", ``)
	})
}

func TestWrongCalls(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		call := func(status int, body []byte, kind string) answer {
			t.Helper()
			return h.want(status, "POST", "/v1/engine/step", string(body), "Content-Type", kind)
		}
		step := func(client, name string, kind protocol.Kind) []byte {
			return wire.AppendStep(nil, &wire.Step{Client: client, Open: &wire.Open{Name: name}, Call: protocol.Call{
				Number: 1, Requests: []protocol.Request{{Kind: kind, ID: engine.ID{Client: client, Number: 1, Weight: 1}, Limit: 1, Lease: time.Second}},
			}})
		}
		call(415, step("http.local.a.1", "x", protocol.Ask), "application/json")
		call(400, []byte("nonsense"), wire.ContentType)
		call(413, make([]byte, 10<<20), wire.ContentType)
		call(400, step("", "x", protocol.Ask), wire.ContentType)
		call(400, step("http.", "x", protocol.Ask), wire.ContentType)
		call(400, step("m1", "x", protocol.Ask), wire.ContentType)
		call(400, step("http.A.b.1", "x", protocol.Ask), wire.ContentType)
		call(400, step("http.local.a.1", "", protocol.Ask), wire.ContentType)
		call(400, step("http.local.a.1", "a\nb", protocol.Ask), wire.ContentType)
		call(400, step("http.local.a.1", "x", 99), wire.ContentType)
		request := func(q protocol.Request) []byte {
			const client = "http.local.a.4"
			q.ID = engine.ID{Client: client, Number: 1, Weight: 1}
			return wire.AppendStep(nil, &wire.Step{Client: client, Open: &wire.Open{Name: "wrong"}, Call: protocol.Call{Number: 1, Requests: []protocol.Request{q}}})
		}
		for _, key := range wrongKeys {
			for _, kind := range []protocol.Kind{protocol.Ask, protocol.SetKey, protocol.UnsetKey} {
				call(400, request(protocol.Request{Kind: kind, Target: protocol.Target{Key: engine.Key(key)}, Limit: 1, Lease: time.Second, Cap: 1}), wire.ContentType)
			}
		}
		for _, caps := range []engine.Caps{{-1}, {0, -1}, {0, 0, -1}, {-2}} {
			call(400, request(protocol.Request{Kind: protocol.Ask, Target: protocol.Target{Key: "acme"}, Caps: caps, Limit: 1, Lease: time.Second}), wire.ContentType)
		}
		for _, caps := range []engine.Caps{{-2}, {0, -2}, {0, 0, -2}} {
			call(400, request(protocol.Request{Kind: protocol.SetLimit, Caps: caps, Limit: 1}), wire.ContentType)
		}
		call(400, request(protocol.Request{Kind: protocol.SetKey, Cap: 1}), wire.ContentType)
		for _, takes := range []string{"gpu", "gpu=0", "gpu=-1", "gpu=01", "gpu=1,", "b=1,a=1", "gpu=1,gpu=1", "=1", "g u=1", "gpu=1\x02gpu=1", "gpu=2147483648", strings.Repeat("a=1,", 1000) + "b=1", strings.Repeat("n", 33) + "=1"} {
			call(400, request(protocol.Request{Kind: protocol.Ask, Target: protocol.Target{Key: "acme", Takes: engine.Pools(takes)}, Pools: "gpu=1", Limit: 1, Lease: time.Second}), wire.ContentType)
			call(400, request(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "acme", Takes: engine.Pools(takes)}, Cap: 1}), wire.ContentType)
			call(400, request(protocol.Request{Kind: protocol.Ask, Pools: engine.Pools(takes), Limit: 1, Lease: time.Second}), wire.ContentType)
			if takes != "gpu=0" {
				call(400, request(protocol.Request{Kind: protocol.SetLimit, Pools: engine.Pools(takes), Limit: 1}), wire.ContentType)
			}
		}
		call(400, request(protocol.Request{Kind: protocol.Ask, Target: protocol.Target{Key: engine.Key(strings.Repeat("k", 250)), Takes: "gpu=1"}, Pools: "gpu=1", Limit: 1, Lease: time.Second}), wire.ContentType)
		call(400, request(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "acme", Takes: "gpu=1"}, Cap: 1}), wire.ContentType)
		call(409, wire.AppendStep(nil, &wire.Step{Client: "http.local.a.2"}), wire.ContentType)
		many := &wire.Step{Client: "http.local.a.3", Open: &wire.Open{Name: "x", Was: make([]wire.Life, 1000)}}
		call(400, wire.AppendStep(nil, many), wire.ContentType)
		h.want(400, "GET", "/v1/engine/state?name=", ``)
		h.want(400, "GET", "/v1/engine/news?client=nonsense", ``)
		h.want(400, "DELETE", "/v1/engine/sessions/nonsense", ``)
		call(200, step("http.local.a.1", "x", protocol.Ask), wire.ContentType)
		if st := h.state("x"); st.Used != 1 {
			t.Errorf("%+v", st)
		}
		if st := h.state("wrong"); st.Limit != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// The audit log has the rules that Go clients set. Caps that a request leaves alone are null there.
func TestRulesByGoClientsAreAudited(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const client = "http.local.a.1"
		var pools []string
		for i := range engine.MaxPools {
			pools = append(pools, string('a'+rune(i))+"=1")
		}
		for i, q := range []protocol.Request{
			{Kind: protocol.SetLimit, Limit: 9, Pin: true},
			{Kind: protocol.SetLimit, Caps: engine.Caps{3}, Pin: true},
			{Kind: protocol.SetLimit, Caps: engine.Caps{0, -1, 5}, Pin: true},
			{Kind: protocol.SetKey, Target: protocol.Target{Key: "acme\x01alice"}, Cap: 2},
			{Kind: protocol.UnsetKey, Target: protocol.Target{Key: "acme"}},
			{Kind: protocol.SetLimit, Pools: "gpu=6,old=0", Pin: true},
			{Kind: protocol.SetLimit, Pools: engine.Pools(strings.Join(pools, ",")), Pin: true},
		} {
			q.ID = engine.ID{Client: client}
			h.step(200, client, "x", uint64(i+1), q)
		}
		if st := h.state("x"); st.Caps != (engine.Caps{3, 0, 5}) || len(st.Pools) != 1 || st.Pools[0] != (engine.PoolState{Pool: "gpu", Limit: 6}) {
			t.Errorf("%+v", st)
		}
		expect.Has(t, h.audit.String(),
			`"limit":9,"result":"done"`, `"caps":[3],"result":"done"`, `"caps":[null,0,5],"result":"done"`, `"key":["acme","alice"],"cap":2,"result":"done"`, `"key":"acme","result":"done"`,
			`"pools":{"gpu":6,"old":0},"result":"done"`, `"p":1},"result":"too many pools"`,
		)
	})
}

// wrongKeys are no keys: names joined by engine.KeySeparator, one of which is wrong, or all together.
var wrongKeys = []string{
	"a\x00b", "a\nb", "\x01", "a\x01", "\x01a", "a\x01\x01b", "a\x01b\x01", "a\x01b\x01c\x01", "a\x01b\x01c\x01d", "a\x01\x02", "a\x01\u2028", "\xff", "a\x01\xff",
	strings.Repeat("n", 256), "a\x01" + strings.Repeat("n", 254), strings.Repeat("n\x01", 5000) + "n",
}

func TestWrongKeysAndCaps(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		var fields []string
		for _, key := range wrongKeys {
			text, err := json.Marshal(key) // a text is one name: no separator is one here
			expect.OK(t, err)
			list, err := json.Marshal(strings.Split(key, engine.KeySeparator))
			expect.OK(t, err)
			if utf8.ValidString(key) {
				fields = append(fields, `"key":`+string(text), `"key":`+string(list))
			}
		}
		fields = append(fields,
			`"key":null`, `"key":1`, `"key":true`, `"key":{}`, `"key":{"name":"a"}`, `"key":[null]`, `"key":["a",null]`, `"key":["a",1]`, `"key":[["a"]]`, `"key":[["a"],"b"]`,
			`"key":[""]`, `"key":["a","b\u0001c"]`, `"key":["a","b"],"key":["a","b"]`, `"key":"a","key":["a"]`, `"keys":"a"`, `"per_key":1`,
			`"key":"`+"\xff"+`"`, `"key":[`+strings.Repeat(`"n",`, 10_000)+`"n"]`, `"key":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000),
			`"caps":null`, `"caps":1`, `"caps":"1"`, `"caps":{}`, `"caps":[null]`, `"caps":[1,null]`, `"caps":[-1]`, `"caps":[1,-1]`, `"caps":[1.5]`, `"caps":["1"]`, `"caps":[[1]]`, `"caps":[true]`,
			`"caps":[1,2,3,4]`, `"caps":[2147483648]`, `"caps":[1e300]`, `"caps":[99999999999999999999]`, `"caps":[1],"caps":[1]`, `"caps":[`+strings.Repeat("1,", 10_000)+`1]`,
		)
		for _, field := range fields {
			h.want(400, "PUT", acquireX, `{"limit":1,`+field+`}`)
			h.want(400, "POST", "/v1/semaphores/x/hold", `{"limit":1,`+field+`}`)
			h.want(400, "PUT", "/v1/semaphores/x/limit", `{"limit":1,`+field+`}`)
		}
		for _, c := range [][2]string{
			{`"caps":[1,2,3,4]`, "number of caps 4: want at most 3"},
			{`"caps":"20,4"`, `the field \"caps\" has a value of the wrong kind: string`},
		} {
			if a := h.want(400, "PUT", acquireX, `{"limit":1,`+c[0]+`}`); !strings.Contains(string(a.body), c[1]) {
				t.Errorf("%s: %s, want %s", c[0], a.body, c[1])
			}
		}
		h.want(413, "PUT", acquireX, `{"limit":1,"key":["a","`+strings.Repeat("n", 10<<20)+`"]}`)
		if names, err := h.engine.List(context.Background()); err != nil || len(names) != 0 {
			t.Errorf("a semaphore was created: %v, %v", names, err)
		}
		for i, fields := range []string{
			`"key":""`, `"key":[]`, `"key":["acme/alice"]`, `"key":["acme"]`, `"key":[ "a" , "b" , "c" ]`, `"key":"` + strings.Repeat("n", 255) + `"`, `"key":["a","` + strings.Repeat("n", 253) + `"]`,
			`"caps":[]`, `"caps":[0,0,0]`, `"caps":[2147483647, 1.0, 1e0]`,
		} {
			h.want(200, "PUT", fmt.Sprintf("/v1/semaphores/right/permits/%d", i), `{"limit":100,`+fields+`}`)
		}
	})
}

// A release may settle rates, and say when the vendor wants the next call.
func TestAReleaseSettles(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const at = "/v1/semaphores/x/permits/a"
		h.want(200, "PUT", at, `{"limit":2,"label":"job 7","pools":{"tpm":"100/1h"},"take":{"tpm":100}}`)
		for _, body := range []string{`{"used":{"tpm":-1}}`, `{"used":{"tpm":"5/1m"}}`, `{"used":7}`, `{"retry_after":-1}`, `{"retry_after":601}`, `{"retry_after":"20"}`, `{"use":{}}`} {
			h.want(400, "DELETE", at, body)
		}
		h.want(204, "DELETE", at, `{"used":{"tpm":40},"retry_after":20}`)
		st := h.state("x")
		if c := st.Cooldown; c == nil || c.By.Label != "job 7" || c.Left <= 10*time.Second || st.Pools[0].Used != 40 {
			t.Errorf("%+v, %+v", c, st.Pools)
		}
		expect.Has(t, h.want(200, "GET", "/v1/semaphores/x", "").body, `"rate":"100/1h"`, `"by":"job 7 on `)
		later := func(want, name, fields string) {
			if s := h.want(429, "PUT", "/v1/semaphores/"+name+"/permits/b", `{"limit":2`+fields+`}`).header.Get("Retry-After"); s != want {
				t.Errorf("Retry-After of %q: %s, want %s", fields, s, want)
			}
		}
		later("20", "x", "")         // in the cooldown
		time.Sleep(21 * time.Second) // in virtual time
		h.want(200, "PUT", at, `{"limit":2,"take":{"tpm":60}}`)
		later("1799", "x", `,"take":{"tpm":50}`) // 36 s for each; nothing came back in the cooldown, which ended 1 s ago
		h.want(200, "PUT", "/v1/semaphores/x/permits/c", `{"limit":2}`)
		later("1", "x", "") // without a permit
		h.want(200, "PUT", "/v1/semaphores/y/permits/a", `{"limit":2,"pools":{"tpd":"2000000/24h"},"take":{"tpd":1900000}}`)
		later("38880", "y", `,"take":{"tpd":1000000}`) // 900,000 of a day's rate are missing
	})
}

func TestWrongPools(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		var many []string
		for i := range engine.MaxPools + 1 {
			many = append(many, fmt.Sprintf(`"p%d":1`, i))
		}
		wrong := []string{
			`null`, `1`, `"gpu=1"`, `true`, `[]`, `["gpu"]`, `{"gpu":null}`, `{"gpu":"1"}`, `{"gpu":1.5}`, `{"gpu":-1}`, `{"gpu":[1]}`, `{"gpu":{}}`, `{"gpu":2147483648}`, `{"gpu":1e300}`,
			`{"rpm":"5/0s"}`, `{"rpm":"5/1y"}`, `{"rpm":"0/1m"}`, `{"rpm":"5+/1m"}`, `{"rpm":"5/1m "}`, `{"gpu":99999999999999999999}`, `{"gpu":1,"gpu":1}`, `{"":1}`, `{"g u":1}`, `{"a=1,b":1}`, `{"ü":1}`, `{"a\u0001":1}`, `{"a\u0002":1}`, `{"` + strings.Repeat("n", 33) + `":1}`,
			`{` + strings.Join(many, ",") + `}`, `{"` + strings.Repeat("n", 60_000) + `":1}`, `{"gpu":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`, "{\"\xff\":1}",
		}
		for _, value := range wrong {
			for _, name := range []string{"pools", "take"} {
				h.want(400, "PUT", acquireX, `{"limit":1,"`+name+`":`+value+`}`)
				h.want(400, "POST", "/v1/semaphores/x/hold", `{"limit":1,"`+name+`":`+value+`}`)
				h.want(400, "PUT", "/v1/semaphores/x/limit", `{"limit":1,"`+name+`":`+value+`}`)
			}
		}
		for _, fields := range []string{`"pools":{"gpu":0}`, `"take":{"gpu":0}`, `"take":{"rpm":"5/1m"}`, `"key":"` + strings.Repeat("k", 250) + `","take":{"gpu":1}`, `"pools":{"gpu":1},"pools":{"gpu":1}`} {
			h.want(400, "PUT", acquireX, `{"limit":1,`+fields+`}`)
		}
		h.want(404, "PUT", acquireX, `{"limit":1,"take":{"gpu":1}}`)
		h.want(413, "PUT", acquireX, `{"limit":1,"take":{"`+strings.Repeat("n", 70_000)+`":1}}`)
		if st := h.state("x"); st.Used != 0 || len(st.Pools) != 0 {
			t.Errorf("%+v", st)
		}
		long := strings.Repeat("n", 32)
		for i, fields := range []string{
			`"pools":{}`, `"take":{}`, `"pools":{"` + long + `":2147483647,"A.b-c_9":1e0},"take":{"` + long + `":2147483647}`,
			`"pools":{"rpm":"5/1m"},"take":{"rpm":5}`, `"pools":{"gpu":9},"take":{"gpu":1},"key":"` + strings.Repeat("k", 249) + `"`, `"pools":{` + strings.Join(many[1:], ",") + `},"take":{` + strings.Join(many[1:], ",") + `}`,
		} {
			h.want(200, "PUT", fmt.Sprintf("/v1/semaphores/right%d/permits/a", i), `{"limit":100,`+fields+`}`)
		}
	})
}

// A path with an empty name, a slash as a name, or dots, is refused. A redirect to the path without it would lead
// a client that follows it to another key, or to the semaphore.
func TestPathsOfKeysAreTakenAsTheyAre(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(204, "PUT", "/v1/semaphores/x/limit", `{"limit":1}`)
		for _, path := range []string{"keys//alice", "keys/acme//alice", "keys/acme//", "keys/..", "keys/.", "keys/acme/..", "/limit", "../x/limit", "keys/%2F", "keys/%2f/alice", "keys/acme/%2F"} {
			for _, method := range []string{"PUT", "DELETE"} {
				if a := h.want(400, method, "/v1/semaphores/x/"+path, `{"cap":1}`); !strings.Contains(string(a.body), "want %2E") {
					t.Errorf("%s %s: %s", method, path, a.body)
				}
			}
		}
		for _, path := range []string{"keys/a%2F%2Fb", "keys/%2E%2E", "keys/acme/%2E", "keys/acme/...", "keys/%2Fa/a%2F"} {
			h.want(204, "PUT", "/v1/semaphores/x/"+path, `{"cap":1}`)
		}
	})
}

// serving runs Server.Serve with connections in memory.
func serving(t *testing.T, o server.Options) *pipenet.Listener {
	e := memengine.New()
	l := pipenet.Listen()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	s, err := server.New(e, &o)
	expect.OK(t, err)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		expect.OK(t, <-served)
		_ = e.Close()
	})
	return l
}

// The server disconnects a client that sends only half a request, at every route and with
// every answer. The client does not delay others.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := serving(t, server.Options{Tokens: tokens(t), Dashboard: http.NotFoundHandler()})
		const token, body = "Authorization: Bearer boss.secret-of-the-boss\r\n", "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"limit\":"
		for text, status := range map[string]string{
			"PUT " + acquireX + " HTTP/1.1\r\nHost: localhost\r\n" + body:                " 401 ",
			"POST /healthz HTTP/1.1\r\nHost: localhost\r\n" + body:                       " 405 ",
			"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + body:                        " 200 ",
			"POST /v1//semaphores HTTP/1.1\r\nHost: localhost\r\n" + body:                " 401 ",
			"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\n" + body:                    " 401 ",
			"POST /login HTTP/1.1\r\nHost: localhost\r\n" + body:                         " 404 ",
			"GET /v1/semaphores HTTP/1.1\r\nHost: localhost\r\n" + token + body:          " 200 ",
			"PATCH /v1/semaphores HTTP/1.1\r\nHost: localhost\r\n" + token + body:        " 405 ",
			"POST /v1/semaphores/x/pause HTTP/1.1\r\nHost: localhost\r\n" + token + body: " 404 ",
			"PUT " + acquireX + " HTTP/1.1\r\nHost: localhost\r\nContent-Le":             " 400 ",
			"PUT " + acquireX + " HTTP/1.1\r\nHost: localhost\r\n" + token + body:        " 408 ",
		} {
			c, err := l.Dial(t.Context(), "", "")
			expect.OK(t, err)
			began := time.Now()
			_, err = io.WriteString(c, text)
			expect.OK(t, err)
			got, err := io.ReadAll(c) // ends when the server closes the connection
			if took := time.Since(began); err != nil || !strings.Contains(string(got), status) || took > 15*time.Second {
				t.Errorf("%q, %v, after %v", got, err, took)
			}
			_ = c.Close()
		}
	})
}

const tokenFile = `
# NAME RIGHT PREFIXES SECRET
looker  read  *      secret-of-the-looker
worker  use   job-,x secret-of-the-worker
other   use   job-   secret-of-the-other1
boss    admin *      sha256:%s
chief   admin job-   secret-of-the-chief
`

func tokens(tb testing.TB) *server.Tokens {
	hash := sha256.Sum256([]byte("secret-of-the-boss"))
	list, err := server.ReadTokens(strings.NewReader(fmt.Sprintf(tokenFile, hex.EncodeToString(hash[:]))))
	expect.OK(tb, err)
	return list
}

func TestTokens(t *testing.T) {
	var logged buffer
	virtual(t, server.Options{Tokens: tokens(t), Log: slog.New(slog.NewTextHandler(&logged, nil))}, func(t *testing.T, h *testServer) {
		as := func(token string, status int, method, path, body string) answer {
			t.Helper()
			h.token = token
			return h.want(status, method, path, body)
		}
		looker, worker, other, boss := "looker.secret-of-the-looker", "worker.secret-of-the-worker", "other.secret-of-the-other1", "boss.secret-of-the-boss"
		for _, wrong := range []string{"", "boss", "boss.", "boss.wrong", "nobody.secret-of-the-boss", ".", "boss.secret-of-the-boss2", "local.x", "worker.secret-of-the-boss"} {
			as(wrong, 401, "GET", "/v1/semaphores", "")
			as(wrong, 401, "PUT", acquireX, `{"limit":1}`)
			as(wrong, 401, "GET", "/nothing", "")
			as(wrong, 200, "GET", "/healthz", "")
			as(wrong, 200, "GET", "/readyz", "")
		}
		if a := as("", 401, "GET", "/v1/semaphores", ""); a.header.Get("WWW-Authenticate") == "" {
			t.Error("no WWW-Authenticate")
		}
		as(looker, 200, "GET", "/v1/semaphores", "")
		as(looker, 403, "PUT", acquireX, `{"limit":1}`)
		as(looker, 403, "DELETE", acquireX, "")
		as(looker, 403, "POST", "/v1/semaphores/x/hold", `{"limit":1}`)
		as(looker, 403, "PUT", "/v1/semaphores/x/limit", `{"limit":1}`)
		as(worker, 200, "PUT", acquireX, `{"limit":2}`)
		as(worker, 403, "PUT", "/v1/semaphores/y/permits/a", `{"limit":1}`)
		as(worker, 403, "GET", "/v1/semaphores/y", "")
		as(worker, 403, "GET", "/v1/engine/state?name=y", "")
		as(worker, 403, "GET", "/v1/events?name=y", "")
		as(worker, 403, "GET", "/v1/events?prefix=y", "")
		as(worker, 403, "POST", "/v1/semaphores/x/pause", "")
		as("chief.secret-of-the-chief", 403, "POST", "/v1/semaphores/y/holders/nope/revoke", "") // also with an id that cannot be
		as("chief.secret-of-the-chief", 403, "DELETE", "/v1/semaphores/y/holders/nope", "")
		as("chief.secret-of-the-chief", 404, "DELETE", "/v1/semaphores/job-1/holders/nope", "")
		as(boss, 204, "PUT", "/v1/semaphores/y/limit", `{"limit":1}`)
		if a := as(worker, 200, "GET", "/v1/semaphores", ""); strings.Contains(string(a.body), `"y"`) {
			t.Errorf("a token sees another name: %s", a.body)
		}
		if a := as(worker, 200, "GET", "/v1/engine/list", ""); string(a.body) != "[\"x\"]\n" {
			t.Errorf("%s", a.body)
		}
		// The same id with another token is another permit.
		as(worker, 200, "PUT", "/v1/semaphores/job-1/permits/a", `{"limit":5}`)
		as(other, 410, "DELETE", "/v1/semaphores/job-1/permits/a", "")
		as(other, 200, "PUT", "/v1/semaphores/job-1/permits/a", `{"limit":5}`)
		if st := h.state("job-1"); st.Used != 2 {
			t.Errorf("%+v", st)
		}
		permit := at(as(boss, 200, "GET", "/v1/semaphores/x", "").field("holders").([]any)[0], "permit").(string)
		as(worker, 403, "POST", "/v1/semaphores/x/holders/"+permit+"/revoke", "")
		as(boss, 204, "DELETE", "/v1/semaphores/x/holders/"+permit, "")
		if !strings.Contains(h.audit.String(), `"who":"boss"`) || strings.Contains(h.audit.String()+logged.String(), "secret-of") {
			t.Errorf("audit:\n%s\nlog:\n%s", h.audit.String(), logged.String())
		}
	})
}

// The same rights apply to the protocol of Go clients.
func TestTokensOfGoClients(t *testing.T) {
	virtual(t, server.Options{Tokens: tokens(t)}, func(t *testing.T, h *testServer) {
		step := func(status int, token, client, name string, r protocol.Request) {
			t.Helper()
			h.token = token
			h.step(status, client, name, 1, r)
		}
		ask := func(client string) protocol.Request {
			return protocol.Request{Kind: protocol.Ask, ID: engine.ID{Client: client, Number: 1, Weight: 1}, Limit: 5, Lease: time.Minute}
		}
		const worker, other, boss = "worker.secret-of-the-worker", "other.secret-of-the-other1", "boss.secret-of-the-boss"
		step(401, "worker.wrong", "http.worker.a.1", "job-1", ask("http.worker.a.1"))
		step(403, "looker.secret-of-the-looker", "http.looker.a.1", "job-1", ask("http.looker.a.1"))
		step(403, worker, "http.other.a.1", "job-1", ask("http.other.a.1"))
		step(403, worker, "http.worker.a.1", "y", ask("http.worker.a.1"))
		step(200, worker, "http.worker.a.1", "job-1", ask("http.worker.a.1"))
		step(403, other, "http.other.a.1", "job-1", protocol.Request{Kind: protocol.Release, ID: engine.ID{Client: "http.worker.a.1", Number: 1, Weight: 1}})
		step(403, worker, "http.worker.a.1", "job-1", protocol.Request{Kind: protocol.SetLimit, Limit: 9})
		step(403, worker, "http.worker.a.1", "job-1", protocol.Request{Kind: protocol.Pause})
		for _, h2 := range h.state("job-1").Holders { // by its id in the engine
			id, err := engine.ParseID(h2.ID)
			expect.OK(t, err)
			step(403, other, "http.other.a.1", "job-1", protocol.Request{Kind: protocol.Release, ID: id})
		}
		if st := h.state("job-1"); st.Used != 1 || st.Limit != 5 {
			t.Errorf("%+v", st)
		}
		step(200, worker, "http.worker.b.1", "job-1", protocol.Request{Kind: protocol.Release, ID: engine.ID{Client: "http.worker.a.1", Number: 1, Weight: 1}})
		if st := h.state("job-1"); st.Used != 0 {
			t.Errorf("want the permit released by the same token: %+v", st)
		}
		step(200, boss, "http.boss.a.1", "job-1", protocol.Request{Kind: protocol.SetLimit, Limit: 9})
		expect.Has(t, h.audit.String(), `"what":"release"`, `"permit":"http.worker.a.1-1-1"`, `"what":"limit"`, `"limit":9`)
	})
}

func TestTokenFilesThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "no token",
		"a use *":                           "line 1: 3 words",
		"\n# c\na.b use * 0123456789abcdef": "line 3: the first word is no name",
		"a all * 0123456789abcdef":          "no right",
		"a use * short-hush":                "too short",
		"a use * sha256:hush":               "no hash",
		"a use x,,y 0123456789abcdef":       "no list of prefixes",
		"local use * 0123456789abcdef":      "is taken",
		"a use * 0123456789abcdef\na read * 0123456789abcdef": "twice",
		"a use * 0123456789abcdef\na use x 0123456789abcdef":  "twice",
		"a use * 0123456789abcdef expires=2027-13-01":         "no day",
		"a use * 0123456789abcdef 2027-01-01":                 "no day",
		"a use * 0123456789abcdef expires=2027-01-01 x":       "6 words",
	} {
		_, err := server.ReadTokens(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: error %v; want %q", text, err, want)
		}
	}
}

// Every request that is refused for lack of a right is in the audit log. A client that
// guesses secrets is told to wait, and no other client.
func TestRefusalsAreAudited(t *testing.T) {
	virtual(t, server.Options{Tokens: tokens(t)}, func(t *testing.T, h *testServer) {
		last := func(want ...string) {
			t.Helper()
			lines := strings.Split(strings.TrimSpace(h.audit.String()), "\n")
			expect.Has(t, lines[len(lines)-1], append(want, `"what":"refused"`)...)
		}
		h.token = "looker.secret-of-the-looker"
		h.want(403, "PUT", "/v1/semaphores/x/limit", `{"limit":1}`)
		last(`"who":"looker"`, `"request":"PUT /v1/semaphores/x/limit"`, `"name":"x"`, "needs admin")
		h.token = "worker.secret-of-the-worker"
		h.want(403, "GET", "/v1/semaphores/y", "")
		last(`"who":"worker"`, `"name":"y"`)
		h.step(403, "http.worker.a.1", "job-1", 1, protocol.Request{Kind: protocol.Pause})
		last(`"who":"worker"`, "needs admin", `"name":"job-1"`)
		h.step(403, "http.worker.a.2", "secret", 1)
		last(`"who":"worker"`, "not for semaphores of this name", `"name":"secret"`)
		for i := range 100 {
			h.token = fmt.Sprintf("boss.guess-%d", i)
			a := h.want(map[bool]int{false: 401, true: 429}[i >= 20], "GET", "/v1/semaphores", "")
			if told := a.header.Get("Retry-After") != ""; told != (i >= 20) {
				t.Fatalf("guess %d: asked to wait: %v", i, told)
			}
		}
		if n := strings.Count(h.audit.String(), `the secret of \"boss\" is wrong`); n != 20 {
			t.Errorf("%d lines about guesses", n)
		}
		h.token = "boss.secret-of-the-boss"
		h.want(429, "GET", "/v1/semaphores", "")
		h.token = "looker.secret-of-the-looker"
		h.want(200, "GET", "/v1/semaphores", "")
		time.Sleep(time.Minute)
		h.token = "boss.secret-of-the-boss"
		h.want(200, "GET", "/v1/semaphores", "")
	})
}

// A permanent error of the engine is logged once a minute.
func TestAnEngineErrorThatLastsIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &buffer{}
		h := newVirtual(t, between{memengine.New(), func(call string) error {
			if call == "step" {
				return &engine.Error{Op: "step", Name: "x", NotExecuted: true, Err: errors.New("no such database")}
			}
			return nil
		}}, server.Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		for range 10 {
			h.want(503, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		}
		if n := strings.Count(log.String(), "no such database"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log)
		}
	})
}

// A program with an old secret is refused, but does not lock out other clients at its address.
func TestAnOldSecretLocksNobodyOut(t *testing.T) {
	virtual(t, server.Options{Tokens: tokens(t)}, func(t *testing.T, h *testServer) {
		for range 60 {
			h.token = "boss.secret-of-last-year"
			h.want(401, "GET", "/v1/semaphores", "")
		}
		h.token = "boss.secret-of-the-boss"
		h.want(200, "GET", "/v1/semaphores", "")
		for i := range 60 {
			h.token = fmt.Sprintf("boss.guess-%d", i)
			h.do("GET", "/v1/semaphores", "")
		}
		h.token = "boss.secret-of-the-boss" // valid, and used before from this address
		h.want(200, "GET", "/v1/semaphores", "")
	})
}

// A name may have two secrets, of which one expires. A new token file ends the tokens that it
// lacks, also on open connections. An invalid file changes nothing.
func TestTokensChange(t *testing.T) {
	list, err := server.ReadTokens(strings.NewReader("a use * the-old-secret-of-a expires=2000-01-03\na use * the-new-secret-of-a\nb read * the-secret-of-b-now"))
	expect.OK(t, err)
	virtual(t, server.Options{Tokens: list}, func(t *testing.T, h *testServer) { // virtual time begins on 2000-01-01
		as := func(token string, status int) {
			t.Helper()
			h.token = token
			h.want(status, "GET", "/v1/semaphores", "")
		}
		as("a.the-old-secret-of-a", 200)
		as("a.the-new-secret-of-a", 200)
		time.Sleep(48 * time.Hour)
		as("a.the-old-secret-of-a", 401)
		as("a.the-new-secret-of-a", 200)
		if err := list.Reread(strings.NewReader("a use\n")); err == nil {
			t.Error("an invalid file was accepted")
		}
		as("b.the-secret-of-b-now", 200)
		events := h.stream(t.Context(), "GET", "/v1/events", "", "Authorization", "Bearer b.the-secret-of-b-now")
		hold := func() *http.Response {
			return h.stream(t.Context(), "POST", "/v1/semaphores/x/hold", `{"limit":1,"wait_seconds":3600}`, "Authorization", "Bearer a.the-new-secret-of-a")
		}
		held := hold()
		waits := hold()
		expect.OK(t, list.Reread(strings.NewReader("a use * the-next-secret-of-a")))
		as("a.the-new-secret-of-a", 401)
		as("a.the-next-secret-of-a", 200)
		as("b.the-secret-of-b-now", 401)
		_, err := io.Copy(io.Discard, events.Body) // until the server ends it
		expect.OK(t, err)
		for _, one := range []struct {
			answer *http.Response
			end    string
		}{{held, `"lost"`}, {waits, `"refused"`}} {
			text, err := io.ReadAll(one.answer.Body)
			expect.OK(t, err)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, one.end) || !strings.Contains(last, "the token is no longer valid") {
				t.Errorf("%s; want %s at the end", text, one.end)
			}
		}
		if st := h.state("x"); st.Used != 0 || len(st.Waiters) != 0 {
			t.Errorf("a permit is held without a valid token: %+v", st)
		}
	})
}

// If all tokens have expired, every request is refused.
func TestExpired(t *testing.T) {
	for file, want := range map[string]bool{
		"a use * the-old-secret-of-a expires=2000-01-03":                                                 true,
		"a use * the-old-secret-of-a expires=2000-01-03\nb use * the-old-secret-of-b":                    false,
		"a use * the-old-secret-of-a expires=2000-01-03\na use * the-new-secret-of-a expires=9999-01-03": false,
	} {
		list, err := server.ReadTokens(strings.NewReader(file))
		expect.OK(t, err)
		if got := list.Expired(); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

// Behind a trusted proxy the server sees the caller's own address. Paths below the path of the
// public address mean the same as paths below /.
func TestBehindAProxy(t *testing.T) {
	proxies, err := rights.ParseProxies("127.0.0.1")
	expect.OK(t, err)
	public, err := url.Parse("https://sema.example.org/ops/")
	expect.OK(t, err)
	virtual(t, server.Options{Proxies: proxies, PublicURL: public}, func(t *testing.T, h *testServer) {
		from := []string{"X-Forwarded-For", "198.51.100.7"}
		h.want(200, "PUT", acquireX, `{"limit":1}`, from...)
		if host := h.state("x").Holders[0].Client.Host; host != "198.51.100.7" {
			t.Errorf("host %s", host)
		}
		h.do("POST", "/v1/semaphores/x/pause", "", from...)
		expect.Has(t, h.audit.String(), `"from":"198.51.100.7"`)
		for path, status := range map[string]int{"/ops/healthz": 200, "/ops/v1/semaphores/x": 200, "/healthz": 200, "/opsx/healthz": 404} {
			w, err := h.client.Get(h.url + path)
			expect.OK(t, err)
			_ = w.Body.Close()
			if w.StatusCode != status {
				t.Errorf("%s: %d", path, w.StatusCode)
			}
		}
		h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		w, err := h.client.Get(h.url + "/ops?sort=name")
		expect.OK(t, err)
		_ = w.Body.Close()
		if to := w.Header.Get("Location"); w.StatusCode != 308 || to != "/ops/?sort=name" {
			t.Errorf("without the slash: %d to %q", w.StatusCode, to)
		}
		for origin, status := range map[string]int{"https://sema.example.org": 204, "https://evil.example.org": 403} {
			h.want(status, "POST", "/v1/semaphores/x/unpause", "", "Origin", origin)
		}
	})
}

// Pages of other sites cannot use a server without tokens through a browser.
func TestOtherSites(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		for _, c := range []struct {
			host, origin, site string
			status             int
		}{
			{"evil.example", "", "", 403},
			{"localhost:80", "", "", 204},
			{"", "http://evil.example", "", 403},
			{"", "", "cross-site", 403},
			{"", "", "same-origin", 204},
		} {
			r := h.request(t.Context(), "PUT", "/v1/semaphores/x/limit", `{"limit":1}`)
			r.Host = c.host
			for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w, err := h.client.Do(r)
			expect.OK(t, err)
			_ = w.Body.Close()
			if w.StatusCode != c.status {
				t.Errorf("%+v: status %d", c, w.StatusCode)
			}
		}
	})
}

func TestLimitOfWaiters(t *testing.T) {
	virtual(t, server.Options{MaxWaiters: 1}, func(t *testing.T, h *testServer) {
		h.want(200, "PUT", acquireX, `{"limit":1}`)
		ctx, cancel := context.WithCancel(context.Background())
		answered := h.later(ctx, "/v1/semaphores/x/permits/b", `{"limit":1,"wait_seconds":60}`)
		h.waiting("x", 1)
		if a := h.want(503, "PUT", "/v1/semaphores/x/permits/c", `{"limit":1}`); a.field("type") != "urn:sema:too-many-waiters" {
			t.Errorf("%s", a.body)
		}
		cancel()
		<-answered
	})
}

// A label with special characters must not break a line of the log or a header.
func TestLabelsAreEscaped(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(200, "PUT", acquireX, `{"limit":1,"label":"<script>\u0022 data: x"}`)
		a := h.want(200, "GET", "/v1/semaphores/x", ``)
		if bytes.Contains(a.body, []byte("<script>")) || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s", a.body)
		}
	})
}

func FuzzAcquire(f *testing.F) {
	e := memengine.New()
	s, err := server.New(e, nil)
	expect.OK(f, err)
	f.Cleanup(func() { s.Close(); _ = e.Close() })
	f.Add("x", "a", `{"limit":1,"weight":1,"lease_seconds":1,"label":"l","slot":true}`)
	f.Add("../x", "%", `{"limit":-1}`)
	f.Add("x", "a", `{"limit":9,"key":["acme","alice"],"caps":[3,2]}`)
	f.Fuzz(func(t *testing.T, name, id, body string) {
		if strings.Contains(body, "wait") {
			return
		}
		r := httptest.NewRequest("PUT", "http://localhost/v1/semaphores/"+url.PathEscape(name)+"/permits/"+url.PathEscape(id), strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%q %q %q: %d %s", name, id, body, w.Code, w.Body)
		}
	})
}

func FuzzTokenFile(f *testing.F) {
	f.Add(tokenFile)
	f.Fuzz(func(t *testing.T, text string) {
		if list, err := server.ReadTokens(strings.NewReader(text)); err == nil && list == nil {
			t.Fatal("neither tokens nor an error")
		}
	})
}

// Errors about a body are in the words of JSON, whatever is wrong with whichever field.
func TestErrorsDoNotSpeakOfGo(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		kinds := []string{`[1]`, `{"a":[1]}`, `"text"`, `true`, `1.5`, `[["a"]]`, `[{}]`, `{"a":{}}`, `1e400`, `-1`, `[null]`, `{`, `"`}
		for path, fields := range map[string][]string{
			"POST /v1/semaphores/x/permits":         {"", "limit", "weight", "lease_seconds", "wait_seconds", "label", "slot", "key", "caps", "pools", "take", "priority_seconds", "on_conflict"},
			"POST /v1/semaphores/x/permits/1/renew": {"", "lease_seconds"},
			"PUT /v1/semaphores/x/limit":            {"", "limit", "caps", "pools"},
			"PUT /v1/semaphores/x/keys/acme":        {"", "cap", "share"},
		} {
			for _, field := range fields {
				for _, kind := range kinds {
					method, path, _ := strings.Cut(path, " ")
					body := kind
					if field != "" {
						body = fmt.Sprintf(`{"%s":%s}`, field, kind)
					}
					a := h.do(method, path, body)
					for _, word := range []string{"Go ", "json.", "unmarshal", "float64", "server."} {
						if strings.Contains(string(a.body), word) {
							t.Errorf("%s %s %s: %s", method, path, body, a.body)
						}
					}
				}
			}
		}
	})
}
