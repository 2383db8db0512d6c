// Does with npm package redis-semaphore what it reads, a line of JSON each:
//   {"do": "acquire", "id": ID, "key": KEY, "limit": N, "weight": W, "timeout": MS, "wait": MS}
//   {"do": "release", "id": ID}
// and answers each with a line, as it is done: {"id": ID, "ok": true or false}, or
// with an error: TEXT. A permit is not renewed, so that the tests say how long it lives.
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { MultiSemaphore, Semaphore } from 'redis-semaphore';

const redis = new Redis(process.argv[2]);
const held = new Map();

async function carry(c) {
  if (c.do === 'release') {
    await held.get(c.id).release();
    return true;
  }
  const options = { lockTimeout: c.timeout, refreshInterval: 0 };
  const once = { ...options, acquireAttemptsLimit: 1 };
  const waits = { ...options, acquireTimeout: c.wait };
  const s = c.weight > 1
    ? new MultiSemaphore(redis, c.key, c.limit, c.weight, c.wait ? waits : once)
    : new Semaphore(redis, c.key, c.limit, c.wait ? waits : once);
  held.set(c.id, s);
  return s.tryAcquire();
}

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  carry(c).then(
    (ok) => process.stdout.write(JSON.stringify({ id: c.id, ok }) + '\n'),
    (error) => process.stdout.write(JSON.stringify({ id: c.id, error: String(error?.message ?? error) }) + '\n'),
  );
}
redis.disconnect();
