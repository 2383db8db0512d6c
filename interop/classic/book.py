"""The lock and the semaphores of Redis in Action, as a process that does what
it is told: one JSON request per line in, one JSON answer per line out.

Chapters 6 and 11 describe the algorithms; this is written from the description,
with today's redis-py. Times are seconds as floats, ids are random UUIDs.
"""

import json
import math
import sys
import time
import uuid

import redis


def fresh_id():
    return str(uuid.uuid4())


# 6.2: locks


def lock_acquire(conn, name, wait):
    """6.2.3: a lock without an end."""
    key, me, give_up = "lock:" + name, fresh_id(), time.time() + wait
    while time.time() < give_up:
        if conn.setnx(key, me):
            return me
        time.sleep(0.001)
    return None


def timed_lock_acquire(conn, name, wait, lease):
    """6.2.5: a lock that ends by itself."""
    key, me, give_up = "lock:" + name, fresh_id(), time.time() + wait
    ttl = math.ceil(lease)
    while time.time() < give_up:
        if conn.setnx(key, me):
            conn.expire(key, ttl)
            return me
        if conn.ttl(key) == -1:
            conn.expire(key, ttl)
        time.sleep(0.001)
    return None


def lock_release(conn, name, me):
    key = "lock:" + name
    with conn.pipeline() as tx:
        while True:
            try:
                tx.watch(key)
                if (tx.get(key) or b"").decode() != me:
                    tx.unwatch()
                    return False
                tx.multi()
                tx.delete(key)
                tx.execute()
                return True
            except redis.WatchError:
                continue


# 6.3.1: the basic semaphore


def basic_acquire(conn, name, limit, lease):
    me, now = fresh_id(), time.time()
    with conn.pipeline(transaction=True) as tx:
        tx.zremrangebyscore(name, "-inf", now - lease)
        tx.zadd(name, {me: now})
        tx.zrank(name, me)
        rank = tx.execute()[2]
    if rank < limit:
        return me
    conn.zrem(name, me)
    return None


def basic_release(conn, name, me):
    return conn.zrem(name, me) == 1


# 6.3.2 and 6.3.3: the fair semaphore


def fair_acquire(conn, name, limit, lease):
    me, now, owners = fresh_id(), time.time(), name + ":owner"
    with conn.pipeline(transaction=True) as tx:
        tx.zremrangebyscore(name, "-inf", now - lease)
        tx.zinterstore(owners, {owners: 1, name: 0})
        tx.incr(name + ":counter")
        number = tx.execute()[2]
        tx.zadd(name, {me: now})
        tx.zadd(owners, {me: number})
        tx.zrank(owners, me)
        rank = tx.execute()[2]
    if rank < limit:
        return me
    fair_release(conn, name, me)
    return None


def fair_release(conn, name, me):
    with conn.pipeline(transaction=True) as tx:
        tx.zrem(name, me)
        tx.zrem(name + ":owner", me)
        return tx.execute()[0] == 1


def fair_refresh(conn, name, me):
    if conn.zadd(name, {me: time.time()}) == 0:
        return True
    fair_release(conn, name, me)
    return False


# The same as ports to Java have it: times are whole milliseconds


def millis():
    return int(time.time() * 1000)


def port_acquire(conn, name, limit, lease):
    me, owners = fresh_id(), name + ":owner"
    with conn.pipeline(transaction=True) as tx:
        tx.zremrangebyscore(name, 0, millis() - int(lease * 1000))
        tx.zinterstore(owners, {owners: 1, name: 0})
        tx.incr(name + ":counter")
        number = tx.execute()[2]
        tx.zadd(name, {me: millis()})
        tx.zadd(owners, {me: number})
        tx.zrank(owners, me)
        rank = tx.execute()[2]
    if rank < limit:
        return me
    fair_release(conn, name, me)
    return None


def port_refresh(conn, name, me):
    if conn.zadd(name, {me: millis()}) == 0:
        return True
    fair_release(conn, name, me)
    return False


# 6.3.4: the fair one under the lock without an end, as the book's code has it


def locked_acquire(conn, name, limit, lease):
    lock = lock_acquire(conn, name, 0.01)
    if lock is None:
        return None
    try:
        return fair_acquire(conn, name, limit, lease)
    finally:
        lock_release(conn, name, lock)


# Chapter 11: the same with scripts

LOCK_ACQUIRE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return nil end
return redis.call('SETEX', KEYS[1], ARGV[1], ARGV[2])
"""
LOCK_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
"""
SEM_ACQUIRE = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
local held = redis.call('ZCARD', KEYS[1])
if held >= tonumber(ARGV[2]) then return nil end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
return ARGV[4]
"""
SEM_REFRESH = """
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return nil end
return redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
"""


def scripted_lock_acquire(conn, name, wait, lease):
    me, give_up = fresh_id(), time.time() + wait
    take = conn.register_script(LOCK_ACQUIRE)
    while time.time() < give_up:
        if take(keys=["lock:" + name], args=[math.ceil(lease), me]):
            return me
        time.sleep(0.001)
    return None


def scripted_lock_release(conn, name, me):
    return conn.register_script(LOCK_RELEASE)(keys=["lock:" + name], args=[me]) is not None


def scripted_acquire(conn, name, limit, lease):
    now = time.time()
    got = conn.register_script(SEM_ACQUIRE)(keys=[name], args=[now - lease, limit, now, fresh_id()])
    return got and got.decode()


def scripted_refresh(conn, name, me):
    return conn.register_script(SEM_REFRESH)(keys=[name], args=[me, time.time()]) is not None


CALLS = {
    f.__name__: f
    for f in (
        lock_acquire, timed_lock_acquire, lock_release, scripted_lock_acquire, scripted_lock_release,
        basic_acquire, basic_release, fair_acquire, fair_release, fair_refresh, port_acquire, port_refresh, locked_acquire,
        scripted_acquire, scripted_refresh,
    )
}


def main():
    conn = redis.Redis(port=int(sys.argv[1]))
    conn.ping()
    print(json.dumps({"value": redis.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": CALLS[request["call"]](conn, *request["args"])}
        except Exception as e:  # the other side decides what to make of it
            answer = {"error": repr(e)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
