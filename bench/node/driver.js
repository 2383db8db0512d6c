// Drives npm package redis-semaphore for the bench: W async loops on one client
// acquire, hold and release, as commands on standard input tell them to.
//
//   driver.js --url redis://127.0.0.1:6379 --contestant node-redis-semaphore
//             --name S --limit N --workers W --hold-us H --lease-ms L
//
//   says  {"ready":true,"versions":{…}}
//   told  {"run_ms":1000}   says  {"done":…,"elapsed_ns":…,"hold_ns":…,"waits":[[ns,count],…],"cpu_ns":…,"max_held":…}
//   told  {"quit":true}, or the input ends: exits 0
//   fails with one line {"error":"…"} and 1
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { Semaphore } from 'redis-semaphore';

const CONNECT_MS = 10_000;
// Who still waits this long after the time was up is sent away, uncounted.
const GRACE_MS = 5_000;

const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');

function fail(error) {
  say({ error: String(error?.message ?? error).replace(/\s+/g, ' ') });
  process.exit(1);
}
// redis-semaphore throws here, from a timer, when it finds a lease lost.
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

function readOptions() {
  const names = ['url', 'contestant', 'name', 'limit', 'workers', 'hold-us', 'lease-ms'];
  const { values } = parseArgs({
    options: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
  });
  for (const name of names) {
    if (!values[name]) throw new Error(`--${name} is missing`);
  }
  const whole = (name, least) => {
    const n = Number(values[name]);
    if (!Number.isSafeInteger(n) || n < least) throw new Error(`--${name} ${values[name]}: want a whole number from ${least}`);
    return n;
  };
  if (values.contestant !== 'node-redis-semaphore') throw new Error(`unknown contestant ${values.contestant}`);
  return {
    url: values.url,
    name: values.name,
    limit: whole('limit', 1),
    workers: whole('workers', 1),
    holdUs: whole('hold-us', 0),
    leaseMs: whole('lease-ms', 1),
  };
}

// ioredis with its defaults, except that it does not connect again (it would, for
// ever): what is measured across a lost connection is no measurement.
async function connect(url) {
  const client = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
  let last;
  client.on('error', (error) => {
    last = error;
    console.error(String(error));
  });
  const late = setTimeout(() => fail(`${url} does not answer`), CONNECT_MS);
  try {
    await client.connect();
    await client.ping();
  } catch (error) {
    throw new Error(`${url}: ${(last ?? error).message || (last ?? error).code}`);
  }
  clearTimeout(late);
  return client;
}

function newSemaphore(client, { name, limit, leaseMs }) {
  return new Semaphore(client, name, limit, {
    lockTimeout: leaseMs,
    // Default 10 s, after which acquire fails. Here abort signals end the wait.
    acquireTimeout: Number.POSITIVE_INFINITY,
    // Left at their defaults: retryInterval 10 ms (who finds the limit reached
    // asks again so much later), refreshInterval 0.8 × lockTimeout,
    // acquireAttemptsLimit infinite.
  });
}

// Nanoseconds to two significant digits, to keep the list of waits short.
function round(ns) {
  let unit = 1;
  while (ns / unit >= 100) unit *= 10;
  return Math.round(ns / unit) * unit;
}

async function run(semaphores, holdUs, runMs) {
  let done = 0;
  let holdMs = 0;
  let held = 0;
  let maxHeld = 0;
  let end = 0;
  const waits = new Map();
  // A signal for each worker: a shared one would have to search a list of all
  // waiting workers at every attempt.
  const aborts = semaphores.map(() => new AbortController());
  const sendAway = () => aborts.forEach((abort) => abort.abort());

  const cpu = process.cpuUsage();
  const start = performance.now();
  const deadline = start + runMs;
  const late = setTimeout(sendAway, runMs + GRACE_MS);
  // ioredis waits for an answer as long as the connection stands.
  const stuck = setTimeout(fail, runMs + 2 * GRACE_MS + holdUs / 1000, 'the round does not end');

  const work = async (semaphore, { signal }) => {
    for (let asked = performance.now(); asked < deadline && !signal.aborted; asked = performance.now()) {
      try {
        await semaphore.acquire(signal);
      } catch (error) {
        if (error === signal.reason) return;
        throw error;
      }
      const got = performance.now();
      maxHeld = Math.max(maxHeld, ++held);
      if (holdUs > 0) {
        // Timers have whole milliseconds; what was slept is what counts.
        await sleep(Math.ceil(holdUs / 1000));
        holdMs += performance.now() - got;
      }
      held--; // before the release, so that max_held is never too high
      await semaphore.release();
      end = performance.now();
      done++;
      const wait = round((got - asked) * 1e6);
      waits.set(wait, (waits.get(wait) ?? 0) + 1);
    }
  };
  const results = await Promise.allSettled(
    semaphores.map((semaphore, i) =>
      work(semaphore, aborts[i]).catch((error) => {
        sendAway(); // so that the others give back what they hold
        throw error;
      }),
    ),
  );
  clearTimeout(late);
  clearTimeout(stuck);
  const failed = results.find((result) => result.status === 'rejected');
  if (failed) throw failed.reason;

  const used = process.cpuUsage(cpu);
  return {
    done,
    elapsed_ns: Math.round(((end || performance.now()) - start) * 1e6),
    hold_ns: Math.round(holdMs * 1e6),
    waits: [...waits].sort((a, b) => a[0] - b[0]),
    cpu_ns: (used.user + used.system) * 1000,
    max_held: maxHeld,
  };
}

function parseCommand(line) {
  let command;
  try {
    command = JSON.parse(line);
  } catch {
    // told below
  }
  if (command?.quit === true || (Number.isSafeInteger(command?.run_ms) && command.run_ms > 0)) return command;
  throw new Error(`malformed command: ${line}`);
}

const options = readOptions();
const client = await connect(options.url);
const semaphores = Array.from({ length: options.workers }, () => newSemaphore(client, options));
const version = (name) => createRequire(import.meta.url)(`${name}/package.json`).version;
say({
  ready: true,
  versions: {
    node: process.versions.node,
    'redis-semaphore': version('redis-semaphore'),
    ioredis: version('ioredis'),
  },
});
for await (const line of createInterface({ input: process.stdin })) {
  const command = parseCommand(line);
  if (command.quit) break;
  const answer = await run(semaphores, options.holdUs, command.run_ms);
  await client.ping(); // who only waited may not have noticed a lost connection
  say(answer);
}
// Nothing is held between rounds.
client.disconnect();
process.exit(0);
