// Distributed counting semaphores over HTTP: a client of `sema serve`. index.d.ts has the documentation.

const LONGEST_WAIT = 3600 // seconds of a request
const GRACE = 15 // seconds that the server has beyond a wait to answer
const LONGEST_TIMER = 2 ** 31 / 1000 - 1 // seconds

export class SemaError extends Error {
  get name() {
    return this.constructor.name
  }
}
export class Unavailable extends SemaError {}
export class Unreachable extends SemaError {}
export class PermitLost extends SemaError {}
export class Refused extends SemaError {
  constructor({ status, body }) {
    super(`${body.detail ?? "no reason was given"} (${status} ${body.type ?? ""})`)
    this.status = status
    this.kind = body.type ?? ""
    this.at = body.at
  }
}

/** An error about an argument, like the server's. */
const argument = (what, value, want) =>
  new Refused({ status: 400, body: { type: "urn:sema:argument", detail: `${what} ${typeof value === "string" ? JSON.stringify(value) : String(value)}: want ${want}` } })

/** Refuses what JSON would leave out, or send as null. */
function check(wish) {
  for (const [what, value] of Object.entries(wish)) {
    JSON.stringify(value, (_, v) => {
      if (["bigint", "function", "symbol"].includes(typeof v) || (typeof v === "number" && !Number.isFinite(v))) throw argument(what, v, "a value that JSON has")
      return v
    })
  }
}

/** A name in a path. In a URL, . and .. are directories, also as %2E. */
function partOfPath(name) {
  if (typeof name !== "string" || name === "." || name === ".." || /\p{Surrogate}/u.test(name)) throw argument("name", name, "a text, but not . or .., which a URL cannot have")
  return encodeURIComponent(name)
}

const warned = new Set()

/** Says once that another limit, caps or pools hold than were asked for. Caps and pools that are empty ask for nothing. */
function warnIfAnother(name, wish, holds) {
  const plain = (value) => JSON.stringify(Array.isArray(value) || typeof value !== "object" ? value : Object.entries(value).sort())
  const others = ["limit", "caps", "pools"].filter((what) => wish[what] !== undefined && holds[what] !== undefined && plain(wish[what]) !== plain(holds[what]))
  const text = `sema: ${JSON.stringify(name)}: an operator, or another program, has set ${others.map((what) => `${what} ${JSON.stringify(holds[what])}, not ${JSON.stringify(wish[what])}`).join("; ")}`
  if (others.length === 0 || warned.has(text) || warned.size >= 1000) return
  warned.add(text)
  console.warn(text)
}

/** Seconds of a clock that nobody sets. */
const now = () => performance.now() / 1000

/** Sleeps, at most until the signal is aborted; does not keep a program alive. */
const sleep = (seconds, signal, keep = true) => new Promise((done) => {
  if (signal?.aborted) return done()
  const timer = setTimeout(end, Math.min(LONGEST_TIMER, Math.max(0, seconds)) * 1000)
  if (!keep) timer.unref?.()
  function end() {
    clearTimeout(timer)
    signal?.removeEventListener("abort", end)
    done()
  }
  signal?.addEventListener("abort", end)
})

/** Seconds after which the same request may succeed; undefined: it will not. */
const again = ({ status, body }) =>
  [408, 425, 500, 502, 503, 504].includes(status) || body.type === "urn:sema:guessing" ? Math.min(5, Math.max(0.1, Number.isFinite(body.retryAfter) ? body.retryAfter : 1)) : undefined

export class Client {
  #url
  #headers = { "Content-Type": "application/json" }

  constructor({ url, token, patience = 60, poll = 240 } = {}) {
    const env = globalThis.process?.env ?? {}
    const { protocol, host, pathname, username } = new URL(url ?? (env.SEMA_URL || "http://127.0.0.1:7362"))
    if (!/^https?:$/.test(protocol) || username) throw new TypeError(`sema: the URL of the server is ${protocol}//${host}…; want http://HOST:PORT or https://HOST`)
    this.#url = `${protocol}//${host}${pathname.replace(/\/$/, "")}`
    token ??= env.SEMA_SERVER_TOKEN
    if (token) this.#headers.Authorization = `Bearer ${token}`
    Object.assign(this, { patience, poll })
  }

  semaphore(name, { limit, lease = 30, caps = [], pools }) {
    return new Semaphore(this, name, limit, lease, caps, pools)
  }

  /** The answer to a request, or undefined where there is none in time. */
  async ask(method, path, body, timeout, signal) {
    const late = AbortSignal.timeout(Math.ceil(Math.min(LONGEST_TIMER, Math.max(0.001, timeout)) * 1000))
    try {
      const answer = await fetch(this.#url + path, {
        method, headers: this.#headers, body: body && JSON.stringify(body), signal: signal ? AbortSignal.any([signal, late]) : late,
        redirect: "error", cache: "no-store",
      })
      const text = await answer.text()
      const got = { status: answer.status, body: {} }
      try {
        got.body = Object(JSON.parse(text || "{}"))
      } catch { // a proxy's
        if (got.status === 200) got.status = 502
      }
      if (got.status === 200 && !(Number.isFinite(got.body.token) && Number.isFinite(got.body.lease_seconds))) got.status = 502 // no permit
      return got
    } catch {
      return undefined
    }
  }
}

export class Semaphore {
  #client

  constructor(client, name, limit, lease, caps, pools) {
    this.#client = client
    Object.assign(this, { name, limit, lease, caps, pools })
  }

  async acquire({ timeout = Infinity, signal, weight = 1, label = "", slot = false, key = "", take, priority = 0 } = {}) {
    signal?.throwIfAborted()
    if (typeof timeout !== "number" || Number.isNaN(timeout)) throw argument("timeout", timeout, "seconds")
    check({ limit: this.limit, lease: this.lease, caps: this.caps, pools: this.pools, weight, label, slot, key, take, priority })
    const wish = {
      limit: this.limit, lease_seconds: this.lease, ...(weight !== 1 && { weight }), ...(label && { label }), ...(slot && { slot }),
      ...(key && { key }), ...(this.caps?.length !== 0 && { caps: this.caps }), pools: this.pools, take,
      ...(priority && { priority_seconds: priority }),
    }
    const id = crypto.randomUUID()
    const path = `/v1/semaphores/${partOfPath(this.name)}/permits/${id}`
    try {
      return new Permit(this.#client, path, id, this.lease, await this.#held(path, wish, timeout, signal))
    } catch (e) {
      if (!(e instanceof Unavailable)) this.#abandon(path) // it may have been granted
      throw e
    }
  }

  async tryAcquire(options) {
    try {
      return await this.acquire({ ...options, timeout: 0 })
    } catch (e) {
      if (e instanceof Unavailable) return null
      throw e
    }
  }

  async run(work, options) {
    const permit = await this.acquire(options)
    let result
    try {
      result = await work(permit, permit.signal)
    } catch (e) {
      await permit.release().catch(() => {})
      throw permit.signal.aborted ? permit.signal.reason : e
    }
    await permit.release().catch(onlyLoss)
    return result
  }

  /** Asks under one id until the permit is held, and so takes no second one. */
  async #held(path, wish, timeout, signal) {
    const client = this.#client
    const deadline = now() + timeout
    for (let silent; ;) {
      const wait = Math.max(0, Math.min(deadline - now(), LONGEST_WAIT))
      const sent = now()
      const answer = await this.#poll(path, wish, wait, signal)
      signal?.throwIfAborted()
      let pause = 0.5
      if (answer?.status === 200) {
        warnIfAnother(this.name, wish, answer.body)
        const held = { ...answer.body, until: sent + answer.body.lease_seconds - this.lease / 10 }
        if (now() - sent < this.lease / 3) return held
        // It waited, and may have been granted at any moment since: a renewal tells until when it lasts.
        held.until = now() + answer.body.lease_seconds
        const loss = await renew(client, path, this.lease, held, signal)
        signal?.throwIfAborted()
        if (!loss) return held
        continue // nobody has relied on it yet
      }
      const later = answer && again(answer)
      if (later !== undefined) {
        pause = later
      } else if (answer?.status === 423 || answer?.status === 429) {
        if (now() >= deadline) throw new Unavailable(answer.body.detail)
        pause = answer.body.type === "urn:sema:unavailable" ? 0 : 1 // that came only after the wait
      } else if (answer?.status === 410) {
        throw new PermitLost(answer.body.detail)
      } else if (answer) {
        throw new Refused(answer)
      }
      if (answer && answer.status < 500) silent = undefined
      else if (now() - sent > wait + GRACE - 1) silent ??= sent // nothing was heard in all that time
      else if (silent === undefined || now() - sent > client.patience) silent = now() // until then it was there: a long poll has no answer before its end
      if (now() >= deadline || (silent !== undefined && now() - silent > client.patience)) {
        throw new Unreachable(`no answer about ${JSON.stringify(this.name)} in time${answer?.body.detail ? `: ${answer.body.detail}` : ""}`)
      }
      await sleep(Math.min(pause, deadline - now()), signal)
    }
  }

  /** A long poll. A request that has waited for long is relieved by another, so that the place in the queue is kept. */
  async #poll(path, wish, wait, signal) {
    const end = now() + wait
    let before
    for (;;) {
      const left = Math.max(0, end - now())
      const own = new AbortController()
      const answer = this.#client.ask("PUT", path, { ...wish, wait_seconds: left }, left + GRACE, signal ? AbortSignal.any([signal, own.signal]) : own.signal)
      if (before) {
        await Promise.race([answer, sleep(1, signal)]) // the server has this one by then
        before.abort()
      }
      const relieved = new AbortController()
      const first = await Promise.race([answer, left > this.#client.poll ? sleep(this.#client.poll, relieved.signal).then(() => "late") : answer])
      relieved.abort()
      if (first !== "late") return first
      before = own
    }
  }

  async #abandon(path) {
    for (let i = 0; i < 3; i++) {
      const answer = await this.#client.ask("DELETE", path, undefined, 2)
      if (answer && again(answer) === undefined) return
      await sleep(0.2)
    }
  }
}

/** Renews a permit once, and tries until that has succeeded, or says why the permit is lost. */
async function renew(client, path, lease, held, signal) {
  while (!signal?.aborted) {
    const sent = now()
    const left = held.until - sent
    if (left <= 0) return new PermitLost("the permit could not be renewed in time")
    const answer = await client.ask("POST", path + "/renew", { lease_seconds: lease }, Math.min(left, lease / 3), signal)
    if (answer?.status === 200) {
      if (answer.body.token !== held.token) return new PermitLost("the permit was lost, and its id has another grant by now")
      held.until = sent + answer.body.lease_seconds - lease / 10
      return undefined
    }
    if (answer?.status === 410) return new PermitLost(answer.body.detail)
    await sleep(Math.min(lease / 20, 1, held.until - now()), signal)
  }
  return undefined
}

export class Permit {
  #client
  #path
  #lease
  #held
  #lost = new AbortController()
  #says = {}
  #released = new AbortController()

  constructor(client, path, id, lease, held) {
    this.#client = client
    this.#path = path
    this.#lease = lease
    this.#held = held
    Object.assign(this, { id, permit: held.permit, token: held.token, slot: held.slot })
    this.#keep()
  }

  /** Not a property of the object: a copy of a permit, for a worker or another process, would have a signal that is never aborted. */
  get signal() {
    return this.#lost.signal
  }

  async #keep() {
    const ended = this.#released.signal
    while (!ended.aborted) {
      await sleep(Math.min(this.#lease / 3, this.#held.until - now()), ended, false)
      const loss = ended.aborted ? undefined : await renew(this.#client, this.#path, this.#lease, this.#held, ended)
      if (loss && !ended.aborted) return this.#lost.abort(loss)
    }
  }

  used(pool, n) {
    if (!Number.isInteger(n) || n < 0 || n >= 2 ** 31) throw argument(`used ${pool}`, n, "a whole number, 0 to 2147483647")
    this.#says.used = { ...this.#says.used, [pool]: n }
  }

  retryAfter(seconds) {
    if (seconds > 0) this.#says.retry_after = Math.max(this.#says.retry_after ?? 0, Math.min(seconds, 600))
  }

  async release() {
    if (this.#released.signal.aborted) return
    this.#released.abort()
    if (now() >= this.#held.until) this.#lost.abort(new PermitLost("the permit could not be renewed in time")) // the event loop may have stood still
    this.signal.throwIfAborted()
    const end = this.#held.until + this.#lease / 10
    let says = this.#says.used || this.#says.retry_after ? this.#says : undefined
    for (let first = true; ;) {
      const answer = await this.#client.ask("DELETE", this.#path, says, Math.max(0.5, Math.min(5, end - now())))
      if (answer?.status === 204) return
      if (answer?.status === 410) {
        if (first) throw new PermitLost(answer.body.detail)
        return // an earlier request, whose answer was lost, has given it back
      }
      if (answer?.status === 400 && says) { // what was said is wrong, but the work is over
        console.warn(`sema: what the release said does not count: ${answer.body.detail}`)
        says = undefined
        continue
      }
      if (answer && again(answer) === undefined) throw new Refused(answer)
      first &&= answer?.body.notExecuted === true
      if (now() >= end) throw new Unreachable("the permit could not be given back; its lease has ended")
      await sleep(Math.min(0.5, end - now()))
    }
  }
}

/** What a release says of the work that it ended: that the permit was lost. Work that went well stays well if only the release failed. */
function onlyLoss(e) {
  if (e instanceof PermitLost) throw e
}

if (Symbol.asyncDispose) Permit.prototype[Symbol.asyncDispose] = function () {
  return this.release().catch(onlyLoss)
}
