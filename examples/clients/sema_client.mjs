// sema over HTTP in JavaScript, with nothing to install (Node 18 or later, Deno, Bun). A permit is
// renewed while it is held.
//
//     await withPermit("downloads", { limit: 3 }, async (permit, lost) => { … fetch(url, { signal: lost }) … })
const env = globalThis.process?.env ?? {}
const URL = env.SEMA_URL ?? "http://127.0.0.1:7362"
const LEASE = 30

async function call(method, path, body) {
  const headers = { "Content-Type": "application/json" }
  if (env.SEMA_SERVER_TOKEN) headers.Authorization = "Bearer " + env.SEMA_SERVER_TOKEN
  const answer = await fetch(URL + path, { method, headers, body: body && JSON.stringify(body) })
  const text = await answer.text()
  if (answer.ok) return text && JSON.parse(text)
  throw Object.assign(new Error(`${answer.status}: ${text}`), { status: answer.status })
}

export async function withPermit(name, { limit, wait = 3600, ...more }, work) {
  const path = `/v1/semaphores/${encodeURIComponent(name)}/permits/${crypto.randomUUID()}`
  const held = await call("PUT", path, { limit, wait_seconds: wait, lease_seconds: LEASE, ...more })
  const lost = new AbortController()
  const renewing = setInterval(() => call("POST", path + "/renew", { lease_seconds: LEASE })
    .catch((e) => e.status === 410 && lost.abort(e)), (LEASE * 1000) / 3) // else the next renewal may succeed
  try {
    return await work(held, lost.signal)
  } finally {
    clearInterval(renewing)
    await call("DELETE", path)
  }
}
