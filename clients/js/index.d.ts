/// <reference lib="esnext.disposable" />

// The global one, where the program has DOM's or Node.js's types.
type AbortSignal = typeof globalThis extends { AbortSignal: { prototype: infer T } } ? T : {
  readonly aborted: boolean
  readonly reason: any
  throwIfAborted(): void
}

/** Any error of this package. */
export class SemaError extends Error {}

/** No permit was free in time. The semaphore is as it was. */
export class Unavailable extends SemaError {}

/** The server, or what keeps its semaphores, did not answer for too long. */
export class Unreachable extends SemaError {}

/** The request is wrong, or not allowed. Nothing was changed. */
export class Refused extends SemaError {
  readonly status: number
  /** Such as "urn:sema:too-heavy"; stays the same for ever. */
  readonly kind: string
  /** What the request can never fit into: the cap of a key, or a pool. Undefined: the limit. */
  readonly at?: { readonly key?: string | readonly string[]; readonly cap?: number; readonly pool?: string; readonly limit?: number }
}

/** The permit is not held any more: somebody else may have it. */
export class PermitLost extends SemaError {}

export interface ClientOptions {
  /** http://HOST:PORT or https://HOST. Default: $SEMA_URL, or else http://127.0.0.1:7362. */
  url?: string
  /** NAME.SECRET. Default: $SEMA_SERVER_TOKEN. */
  token?: string
  /** So many seconds without an answer, and acquire rejects with Unreachable. Default 60. */
  patience?: number
  /** Seconds after which a request that waits is relieved by another, which keeps its place: less than a proxy's, or fetch's, longest wait. Default 240. */
  poll?: number
}

/** A client of a server. */
export class Client {
  constructor(options?: ClientOptions)
  /** The semaphore of that name, which is neither "." nor "..". */
  semaphore(name: string, options: SemaphoreOptions): Semaphore
}

export interface SemaphoreOptions {
  /** Replaces a stored one that is older, unless an operator pinned that; console.warn says once if another holds. */
  limit: number
  /** Seconds, 0.1 … 31622400, that the server waits for a process that vanished; permits are renewed after a third of it. Default 30. */
  lease?: number
  /**
   * How much each key may hold, see AcquireOptions.key: first each key of one name, then each of two and of three, as in [20, 4];
   * stored with the limit. 0, and the default []: as much as is free.
   */
  caps?: readonly number[]
  /** Further limits beside this one, of which AcquireOptions.take takes some, as in { gpu: 8 }; stored with the limit. Default: none. */
  pools?: Readonly<Record<string, number | string>>
}

export interface AcquireOptions {
  /** Seconds, at most; 0: what is free now. Default: as long as it takes. */
  timeout?: number
  /** Ends the wait: acquire rejects with its reason. */
  signal?: AbortSignal
  /** How much of the limit it takes. Default 1. */
  weight?: number
  /** Shown to operators. */
  label?: string
  /** Have an index below the limit that nobody else with a slot has. */
  slot?: boolean
  /**
   * Whose the permit is, of those that share the semaphore: a tenant, or up to three names, such as an organisation and a user
   * of it, ["acme", "alice"]. The permit counts for each of them. The key that holds the least for its share goes first, and
   * within a key the caller that came first. Take keys from authentication: a caller that makes up keys gets a share for each.
   */
  key?: string | readonly string[]
  /** How much of pools it takes, as in { gpu: 1 }, all at once with its weight. Default: none. */
  take?: Readonly<Record<string, number>>
  /** Seconds, 0 … 86400, that this caller counts as having come earlier, within its key. Default 0. */
  priority?: number
}

/** A semaphore of a server. Create it with Client.semaphore. */
export class Semaphore {
  private constructor()
  readonly name: string
  readonly limit: number
  readonly lease: number
  readonly caps: readonly number[]
  readonly pools?: Readonly<Record<string, number | string>>
  /**
   * Waits for a permit, first come, first served. It is renewed until it is released:
   *
   *     await using permit = await semaphore.acquire({ timeout: 60 })
   *
   * Rejects with Unavailable, Unreachable, Refused, or the signal's reason; nothing is held then.
   */
  acquire(options?: AcquireOptions): Promise<Permit>
  /** A permit if one is free now, else null. Rejects as acquire does. */
  tryAcquire(options?: Omit<AcquireOptions, "timeout">): Promise<Permit | null>
  /**
   * Does work with a permit, and releases it. The work gets the permit's signal. Rejects with PermitLost if
   * the permit was lost meanwhile, once the work has ended. A release that the server does not get changes
   * nothing: the permit ends with its lease.
   */
  run<T>(work: (permit: Permit, signal: AbortSignal) => T | Promise<T>, options?: AcquireOptions): Promise<T>
}

/** A permit that is held, and renewed in the background. */
export class Permit implements AsyncDisposable {
  private constructor()
  /** The id that this client gave it. */
  readonly id: string
  /** Its name to operators. */
  readonly permit: string
  /** The fencing token: it grows with each grant, so that storage can refuse a holder of the past. */
  readonly token: number
  /** The index, if a slot was asked for. */
  readonly slot: number | null
  /** Aborted with a PermitLost when the permit is lost, by this process's own clock. Give it to fetch and the like. */
  readonly signal: AbortSignal
  /** Says how much of a rate the work has used. It counts with the release: less than was taken comes back, more is a debt.
   * Throws Refused if n is no whole number from 0 on; the permit stays as it was. */
  used(pool: string, n: number): void
  /** Says with the release that nobody, in any process, is to begin before so many seconds have passed, ten minutes at the most. */
  retryAfter(seconds: number): void
  /** Gives the permit back. Whoever waits has it at once. Rejects with PermitLost if it was lost; a second call does nothing. */
  release(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

export {} // and nothing that is not marked
