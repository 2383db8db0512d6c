import assert from "node:assert/strict"
import { fork } from "node:child_process"
import { once } from "node:events"
import { afterEach, beforeEach, test } from "node:test"
import { Worker } from "node:worker_threads"

import { Client, PermitLost, Refused, Unavailable, Unreachable } from "../index.js"
import { Serving } from "./serving.js"

const MINUTE = 60
let server, client, semaphore

beforeEach(async () => {
  server = await new Serving().start()
  client = new Client({ url: server.url })
  semaphore = client.semaphore(server.name, { limit: 1 })
})
afterEach(() => server.kill())

const lostIn = (permit) => permit.signal.aborted ? permit.signal.reason : once(permit.signal, "abort").then(() => permit.signal.reason)

test("one at a time", async () => {
  let held = 0, most = 0
  await Promise.all(Array.from({ length: 100 }, () => semaphore.run(async () => {
    most = Math.max(most, ++held)
    await new Promise(setImmediate)
    held--
  }, { timeout: MINUTE, label: "node" })))
  assert.equal(most, 1)
})

test("what a permit tells", async () => {
  const permit = await client.semaphore(server.name, { limit: 3 }).acquire({ weight: 2, slot: true })
  assert.equal(permit.slot, 0)
  assert.ok(permit.token > 0)
  await assert.rejects(semaphore.acquire({ weight: 9 }), (e) => e instanceof Refused && e.kind === "urn:sema:too-heavy")
  await permit[Symbol.asyncDispose]()
  await permit.release()
})

test("another limit holds", async (t) => {
  const warn = t.mock.method(console, "warn", () => {})
  const asked = { limit: 3, caps: [2, 1], pools: { licence: 1, gpu: 2 } }
  await client.semaphore(server.name, asked).run(() => {})
  await client.semaphore(server.name, { limit: 5 }).run(() => {}, { weight: 5 })
  assert.equal(warn.mock.callCount(), 0)
  for (let i = 0; i < 2; i++) await client.semaphore(server.name, asked).run(() => {})
  assert.equal(warn.mock.callCount(), 1)
  assert.match(warn.mock.calls[0].arguments[0], /has set limit 5, not 3$/)
})

test("a key as a text has no slash", async () => {
  await assert.rejects(semaphore.acquire({ key: "acme/alice" }), (e) => e instanceof Refused && e.kind === "urn:sema:argument" && e.message.includes('["acme","alice"]'))
  await semaphore.run(() => {}, { key: ["acme/alice"] })
})

test("keys share it", async () => {
  const shared = client.semaphore(server.name, { limit: 3, caps: [1] })
  const acme = await shared.acquire({ key: "acme" })
  assert.equal(await shared.tryAcquire({ key: "acme" }), null)
  const beta = await shared.acquire({ key: "beta" })
  const order = []
  const wait = (label, options) => shared.run(async () => order.push(label), { key: "acme", timeout: MINUTE, label, ...options })
  const late = wait("late")
  await server.waiting(1)
  const early = wait("early", { priority: 3600 })
  await server.waiting(2)
  await acme.release()
  await Promise.all([late, early])
  assert.deepEqual(order, ["early", "late"])
  await beta.release()
  await assert.rejects(shared.acquire({ key: "acme", priority: 1e9 }), (e) => e instanceof Refused && e.kind === "urn:sema:argument")
})

test("keys of several names", async () => {
  const shared = client.semaphore(server.name, { limit: 9, caps: [3, 2] })
  assert.deepEqual(shared.caps, [3, 2])
  const first = await shared.acquire({ key: ["acme", "alice"], weight: 2 })
  let served = false
  const waiting = shared.run(() => { served = true }, { key: ["acme", "alice"], timeout: MINUTE })
  await server.waiting(1)
  const bob = await shared.acquire({ key: ["acme", "bob"] }) // alice waits for herself alone
  assert.equal(await shared.tryAcquire({ key: ["acme", "bob"] }), null)
  assert.equal(await shared.tryAcquire({ key: "acme" }), null)
  const beta = await shared.acquire({ key: ["beta"], weight: 3 })
  assert.equal(await shared.tryAcquire({ key: "beta" }), null)
  assert.ok(!served)
  await first.release()
  await waiting
  await bob.release()
  await beta.release()
  await assert.rejects(shared.acquire({ key: ["acme", "alice"], weight: 3 }), (e) => e instanceof Refused && e.kind === "urn:sema:too-heavy" && e.message.includes("acme/alice"))
  for (const key of [["a", ""], ["a", "b", "c", "d"], ["a\u0001b"], "a\u0001b", "n".repeat(256)]) {
    await assert.rejects(shared.acquire({ key }), (e) => e instanceof Refused && e.kind === "urn:sema:argument")
  }
  for (const caps of [[1, 2, 3, 4], [-1]]) {
    await assert.rejects(client.semaphore(server.name, { limit: 9, caps }).acquire(), (e) => e instanceof Refused && e.kind === "urn:sema:argument")
  }
})

test("rates, settled, and a rest for all", async () => {
  const shared = client.semaphore(server.name, { limit: 9, pools: { tpm: "100/1h" } })
  const first = await shared.acquire({ take: { tpm: 100 } })
  assert.equal(await shared.tryAcquire({ take: { tpm: 1 } }), null)
  for (const wrong of [-1, 12.5, NaN, null, undefined, "5", 2 ** 31]) assert.throws(() => first.used("tpm", wrong), (e) => e instanceof Refused && e.message.includes("used tpm"))
  first.used("tpm", 40)
  await first.release()
  const second = await shared.acquire({ take: { tpm: 60 } })
  second.retryAfter(0.5)
  await second.release()
  assert.equal(await shared.tryAcquire(), null)
  await (await shared.acquire({ timeout: MINUTE })).release()
})

test("pools beside the limit", async () => {
  const shared = client.semaphore(server.name, { limit: 9, pools: { gpu: 2, licence: 1 } })
  assert.deepEqual(shared.pools, { gpu: 2, licence: 1 })
  const both = await shared.acquire({ take: { gpu: 2, licence: 1 } })
  assert.equal(await shared.tryAcquire({ take: { gpu: 1 } }), null)
  let served = false
  const waiting = shared.run(() => { served = true }, { take: { gpu: 1 }, timeout: MINUTE })
  await server.waiting(1)
  await (await shared.acquire()).release() // it takes no GPU
  assert.ok(!served)
  await both.release()
  await waiting
  await assert.rejects(shared.acquire({ take: { gpu: 3 } }), (e) => e instanceof Refused && e.kind === "urn:sema:too-heavy" && e.message.includes("gpu"))
  await assert.rejects(shared.acquire({ take: { gpus: 1 } }), (e) => e instanceof Refused && e.kind === "urn:sema:no-pool" && e.status === 404)
  for (const take of [{ gpu: 0 }, { "": 1 }, { "a b": 1 }, { gpu: 1.5 }, { gpu: "1" }, { gpu: null }, ["gpu"], "gpu=1"]) {
    await assert.rejects(shared.acquire({ take }), (e) => e instanceof Refused && e.status === 400)
  }
})

test("too many sets of pools", async () => {
  const names = ["a", "b", "c", "d", "e"]
  const take = (set) => Object.fromEntries(names.filter((_, i) => set & (1 << i)).map((name) => [name, 1]))
  const shared = client.semaphore(server.name, { limit: 1, pools: take(31) })
  const gate = await shared.acquire()
  const waiting = []
  for (let set = 1; set <= 16; set++) waiting.push(shared.run(() => {}, { take: take(set), timeout: MINUTE }))
  await server.waiting(16)
  assert.equal(await shared.tryAcquire({ take: take(17) }), null)
  const last = shared.run(() => {}, { take: take(17), timeout: MINUTE }) // it asks again until there is room
  await gate.release()
  await Promise.all([...waiting, last])
})

test("what does not fit", async () => {
  const shared = client.semaphore(server.name, { limit: 9, caps: [3], pools: { gpu: 2 } })
  for (const [wish, at] of [
    [{ key: "acme", weight: 4 }, { key: "acme", cap: 3 }], [{ take: { gpu: 3 } }, { pool: "gpu", limit: 2 }],
    [{ take: { gpus: 1 } }, { pool: "gpus" }], [{ weight: 10 }, undefined],
  ]) await assert.rejects(shared.acquire(wish), (e) => e instanceof Refused && (assert.deepEqual(e.at, at), true))
})

test("arguments that no request can have", async () => {
  const refused = (what) => (e) => e instanceof Refused && e.status === 400 && e.kind === "urn:sema:argument" && e.message.startsWith(`${what}: want `)
  for (const name of [".", "..", "\ud800", 5, undefined, null]) {
    await assert.rejects(client.semaphore(name, { limit: 1 }).acquire({ timeout: 0 }), refused(`name ${typeof name === "string" ? JSON.stringify(name) : name}`))
  }
  for (const [what, value] of [["timeout", NaN], ["timeout", "5"], ["timeout", null], ["weight", NaN], ["weight", 1n], ["priority", NaN], ["priority", Infinity], ["label", () => {}], ["key", ["a", 5n]], ["take", { gpu: NaN }]]) {
    await assert.rejects(semaphore.acquire({ timeout: 0, [what]: value }), (e) => e instanceof Refused && e.kind === "urn:sema:argument" && e.message.startsWith(what))
  }
  for (const [what, value] of [["limit", NaN], ["limit", 1n], ["lease", NaN], ["caps", [1n]], ["pools", { gpu: Infinity }]]) {
    await assert.rejects(client.semaphore(server.name, { limit: 1, [what]: value }).acquire({ timeout: 0 }), (e) => e instanceof Refused && e.kind === "urn:sema:argument" && e.message.startsWith(what))
  }
})

test("names are what the server sees", async () => {
  for (const name of ["...", "a/../b", "/a", "../", "%2E", "%2e%2e", " ", "a b?c#d", "ä"]) {
    await client.semaphore(name, { limit: 1 }).run(async () => assert.ok((await server.names()).includes(name), name), { timeout: MINUTE })
  }
  await assert.rejects(client.semaphore("/", { limit: 1 }).acquire({ timeout: 0 }), (e) => e instanceof Refused && e.status === 400)
})

// A process or a thread that is sent a permit gets data: it can neither release the permit nor be told of its loss.
test("a copy of a permit is no permit", async () => {
  await semaphore.run(async (permit) => {
    const { id, token, slot } = permit
    const data = { id, permit: permit.permit, token, slot }
    const copies = [structuredClone(permit), JSON.parse(JSON.stringify(permit)), { ...permit }]
    const worker = new Worker(`require("node:worker_threads").parentPort.postMessage(require("node:worker_threads").workerData)`, { eval: true, workerData: permit })
    copies.push((await once(worker, "message"))[0])
    for (const serialization of ["json", "advanced"]) {
      const child = fork("-", { execArgv: ["-e", `process.once("message", (m) => process.send(m, () => process.exit()))`], serialization })
      child.send(permit)
      const exited = once(child, "exit")
      copies.push((await once(child, "message"))[0])
      await exited
    }
    for (const copy of copies) assert.deepEqual(copy, data)
    await assert.rejects(Object.create(permit).release(), TypeError)
    assert.ok(!permit.signal.aborted)
    assert.equal(await semaphore.tryAcquire(), null)
  })
})

test("nothing free", async () => {
  await semaphore.run(async () => {
    assert.equal(await semaphore.tryAcquire(), null)
    await assert.rejects(semaphore.acquire({ timeout: 0.2 }), Unavailable)
  })
  await (await semaphore.tryAcquire()).release()
})

test("nobody there", async () => {
  await server.kill()
  await assert.rejects(semaphore.acquire({ timeout: 0.2 }), Unreachable)
  await assert.rejects(new Client({ url: server.url, patience: 0.2 }).semaphore("x", { limit: 1 }).acquire(), Unreachable)
})

test("an aborted wait leaves the queue", async () => {
  const first = await semaphore.acquire()
  const stop = new AbortController()
  const waiting = semaphore.acquire({ signal: stop.signal })
  stop.abort(new Error("enough"))
  await assert.rejects(waiting, /enough/)
  await first.release()
  await (await semaphore.acquire({ timeout: MINUTE })).release()
})

test("a wait keeps its place from request to request", async () => {
  const first = await semaphore.acquire()
  const patient = new Client({ url: server.url, poll: 0.3 }).semaphore(server.name, { limit: 1 }).acquire({ timeout: MINUTE })
  const waiting = async () => (await (await fetch(`${server.url}/v1/semaphores/${encodeURIComponent(server.name)}`)).json()).waiters.length
  while (await waiting() < 1);
  const next = semaphore.acquire({ timeout: MINUTE })
  while (await waiting() < 2);
  await new Promise((done) => setTimeout(done, 4000)) // some requests later
  await first.release()
  const order = []
  await Promise.all([patient, next].map(async (permit, i) => {
    permit = await permit
    order.push(i)
    await permit.release()
  }))
  assert.deepEqual(order, [0, 1])
})

test("a permit and a wait outlive the server", async () => {
  const first = await semaphore.acquire()
  const waiting = semaphore.acquire({ timeout: MINUTE })
  await server.kill()
  await server.start()
  assert.equal(await semaphore.tryAcquire(), null)
  assert.ok(!first.signal.aborted)
  await first.release()
  const second = await waiting
  assert.ok(second.token > first.token)
  await second.release()
})

test("renewals outlast the lease", async () => {
  const permit = await client.semaphore(server.name, { limit: 1, lease: 10 }).acquire()
  await new Promise((done) => setTimeout(done, 11000))
  assert.ok(!permit.signal.aborted)
  assert.equal(await semaphore.tryAcquire(), null)
  await permit.release()
})

test("a stopped server is a loss", async () => {
  const permit = await client.semaphore(server.name, { limit: 1, lease: 2 }).acquire()
  server.stop()
  const alive = setInterval(() => {}, 1000)
  assert.ok(await lostIn(permit) instanceof PermitLost)
  clearInterval(alive)
  server.cont()
  await assert.rejects(permit.release(), PermitLost)
})

test("a revoked permit ends the work", async () => {
  await assert.rejects(client.semaphore(server.name, { limit: 1, lease: 3 }).run(async (permit, signal) => {
    await server.revoke(permit.permit)
    await lostIn(permit)
    assert.ok(signal.aborted)
  }), PermitLost)
})

test("work that went well stays well", async () => {
  assert.equal(await client.semaphore(server.name, { limit: 1, lease: 3 }).run(async () => {
    await server.kill()
    return 7
  }), 7)
})

test("guessing is asked again", async (t) => {
  const permit = await semaphore.acquire({ timeout: MINUTE })
  t.mock.method(client, "ask", async () => ({ status: 429, body: { type: "urn:sema:guessing", retryAfter: 0.1 } }), { times: 1 })
  await permit.release()
})

test("a renewal of another grant is a loss", async (t) => {
  const ask = client.ask.bind(client)
  t.mock.method(client, "ask", async (method, path, ...rest) => {
    const answer = await ask(method, path, ...rest)
    if (path.endsWith("/renew")) answer.body.token++
    return answer
  })
  const permit = await client.semaphore(server.name, { limit: 1, lease: 3 }).acquire()
  assert.match((await lostIn(permit)).message, /another grant/)
})

test("a lost answer takes no second permit", async (t) => {
  const ask = client.ask.bind(client)
  let calls = 0
  t.mock.method(client, "ask", async (...args) => {
    const answer = await ask(...args)
    return calls++ % 2 === 0 ? undefined : answer
  })
  const permit = await semaphore.acquire({ timeout: MINUTE })
  assert.equal(await new Client({ url: server.url }).semaphore(server.name, { limit: 1 }).tryAcquire(), null)
  calls = 0
  await permit.release()
  t.mock.restoreAll()
  await (await semaphore.tryAcquire()).release()
})

test("a long poll that breaks was no silence", async (t) => {
  const ask = client.ask.bind(client), clock = performance.now.bind(performance)
  let later = 0, calls = 0
  t.mock.method(performance, "now", () => clock() + later)
  t.mock.method(client, "ask", async (...args) => {
    if (calls++ > 2) return ask(...args)
    if (calls === 1) later += 70_000 // in the queue, for longer than the patience
    return [undefined, { status: 503, body: {} }, { status: 504, body: { retryAfter: "soon" } }][calls - 1]
  })
  await (await semaphore.acquire({ timeout: 3600 })).release()
})

test("a loss that nobody has noticed yet", async (t) => {
  const permit = await semaphore.acquire(), clock = performance.now.bind(performance)
  t.mock.method(performance, "now", () => clock() + MINUTE * 1000) // as if the event loop had stood still
  await assert.rejects(permit.release(), PermitLost)
})

test("what is no permit is a proxy's", async (t) => {
  for (const text of ["", "{}", "[]", '"ok"', "null", '{"token": 1}', "<html>"]) {
    t.mock.method(globalThis, "fetch", async () => new Response(text))
    await assert.rejects(semaphore.acquire({ timeout: 0.1 }), (e) => e instanceof Unreachable && !e.message.includes("undefined"))
    t.mock.restoreAll()
  }
})

test("a release that says nonsense releases", async (t) => {
  const warn = t.mock.method(console, "warn", () => {})
  await semaphore.run((permit) => permit.used("tokens per minute", 5))
  assert.equal(warn.mock.callCount(), 1)
  await (await semaphore.tryAcquire()).release()
})

test("a lease of a year", async (t) => {
  let calls = 0
  t.mock.method(client, "ask", async (method) => {
    calls++
    return method === "DELETE" ? { status: 204, body: {} } : { status: 200, body: { id: "i", permit: "p", token: 1, slot: null, lease_seconds: 31_622_400, limit: 1 } }
  })
  const permit = await client.semaphore(server.name, { limit: 1, lease: 31_622_400 }).acquire()
  await new Promise((done) => setTimeout(done, 50))
  assert.equal(calls, 1)
  await permit.release()
})
