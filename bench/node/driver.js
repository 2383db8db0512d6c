// Drives npm package redis-semaphore for the bench: async loops on one client
// acquire, hold and release. What is said, in lines of JSON, is told in
// lab/measure/driver.go.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Semaphore } from 'redis-semaphore';

// Who still waits this long after the time was up is sent away, uncounted.
const GRACE_MS = 5_000;

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

function fail(error) {
  say({ error: String(error?.message || error?.code || error).replace(/\s+/g, ' ') });
  process.exit(1);
}
// redis-semaphore throws here, from a timer, when it finds a lease lost.
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

// Nanoseconds to two digits, to keep the list of waits short.
function round(ns) {
  let unit = 1;
  while (ns / unit >= 100) unit *= 10;
  return Math.round(ns / unit) * unit;
}

async function run(semaphores, holdUs, runMs) {
  const a = { done: 0, elapsed_ns: 0, hold_ns: 0, unserved: 0, max_held: 0 };
  let held = 0;
  const waits = new Map();
  const waited = (ms) => {
    const ns = round(ms * 1e6);
    waits.set(ns, (waits.get(ns) ?? 0) + 1);
  };
  // A signal for each worker: a shared one would have to search a list of all
  // waiting workers at every attempt.
  const aborts = semaphores.map(() => new AbortController());
  const cpu = process.cpuUsage();
  const start = performance.now();
  const late = setTimeout(() => aborts.forEach((abort) => abort.abort()), runMs + GRACE_MS);
  const work = async (semaphore, { signal }) => {
    for (let asked = start; asked < start + runMs && !signal.aborted; asked = performance.now()) {
      try {
        await semaphore.acquire(signal);
      } catch (error) {
        if (error !== signal.reason) throw error;
        a.unserved++;
        waited(performance.now() - asked);
        return;
      }
      const got = performance.now();
      a.max_held = Math.max(a.max_held, ++held);
      if (holdUs > 0) {
        // Timers have whole milliseconds; what was slept is what counts.
        await sleep(Math.ceil(holdUs / 1000));
        a.hold_ns += Math.round((performance.now() - got) * 1e6);
      }
      held--; // before the release, so that max_held is never too high
      await semaphore.release();
      a.elapsed_ns = Math.round((performance.now() - start) * 1e6);
      a.done++;
      waited(got - asked);
    }
  };
  await Promise.all(semaphores.map((semaphore, i) => work(semaphore, aborts[i])));
  clearTimeout(late);
  const used = process.cpuUsage(cpu);
  a.elapsed_ns ||= Math.round((performance.now() - start) * 1e6);
  return { ...a, waits: [...waits], cpu_ns: (used.user + used.system) * 1000 };
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const setup = JSON.parse((await lines.next()).value);
if (setup.contestant !== 'node-redis-semaphore') throw new Error(`unknown contestant ${setup.contestant}`);
// ioredis with its defaults, except that it does not connect again (it would, for
// ever): what is measured across a lost connection is no measurement.
const client = new Redis(setup.url, { lazyConnect: true, retryStrategy: () => null });
client.on('error', fail);
await client.connect();
const semaphores = Array.from({ length: setup.workers }, () => new Semaphore(client, setup.name, setup.limit, {
  lockTimeout: setup.lease_ms,
  // Default 10 s, after which acquire fails. Here abort signals end the wait.
  acquireTimeout: Number.POSITIVE_INFINITY,
  // Left at their defaults: retryInterval 10 ms (who finds the limit reached
  // asks again so much later), refreshInterval 0.8 × lockTimeout,
  // acquireAttemptsLimit infinite.
}));
const version = (name) => createRequire(import.meta.url)(`${name}/package.json`).version;
say({ ready: true, versions: { node: process.versions.node, 'redis-semaphore': version('redis-semaphore'), ioredis: version('ioredis') } });
for await (const line of lines) {
  say(await run(semaphores, setup.hold_us, JSON.parse(line).run_ms));
}
process.exit(0); // nothing is held between rounds
