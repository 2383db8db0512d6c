// What users write, for the type checker: it is never run.
import { Client, Permit, PermitLost, Refused, SemaError, Semaphore, Unavailable, Unreachable } from "../index.js"

const semaphore: Semaphore = new Client({ url: "https://sema.example.org", token: "a.b", patience: 5 }).semaphore("x", { limit: 3, lease: 10, caps: [20, 4], pools: { gpu: 8 } })

export async function use(signal: AbortSignal): Promise<string | number> {
  await using permit: Permit = await semaphore.acquire({ timeout: 60, signal, weight: 2, label: "me", slot: true, key: "acme", priority: 5 })
  permit.signal.throwIfAborted()
  const slot: number | null = permit.slot
  const maybe: Permit | null = await semaphore.tryAcquire({ label: "me" })
  await maybe?.release()
  const caps: readonly number[] = semaphore.caps
  await semaphore.tryAcquire({ key: ["acme", "alice"], weight: caps[0], take: { gpu: Number(semaphore.pools?.gpu ?? 1) } })
  try {
    return await semaphore.run(async (held, lost) => (lost.aborted ? 0 : held.token))
  } catch (e) {
    if (e instanceof Refused) return `${e.status} ${e.kind} ${e.at?.key ?? e.at?.pool}`
    if (e instanceof PermitLost || e instanceof Unavailable || e instanceof Unreachable) return e.message
    return e instanceof SemaError ? e.message : `${slot}`
  }
}

// @ts-expect-error: a cap is a number
new Client().semaphore("x", { limit: 1, caps: ["20"] })
// @ts-expect-error: an amount is a number
await semaphore.acquire({ take: { gpu: "1" } })
// @ts-expect-error: a limit is needed
new Client().semaphore("x", {})
