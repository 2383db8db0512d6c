package bench;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** One of Redisson's ways to let a limited number in. */
interface Contestant {
    /** Waits so long; returns what release wants, or null when it was too long. */
    Object acquire(long waitMs) throws InterruptedException;

    /** To be called by the thread that acquired: Redisson's locks belong to threads. */
    void release(Object held);

    static void check(String contestant, int limit) {
        switch (contestant) {
            case "redisson-semaphore", "redisson-permit" -> { }
            case "redisson-lock", "redisson-fair-lock" -> {
                if (limit != 1) {
                    throw new IllegalArgumentException(contestant + " has limit 1 only");
                }
            }
            default -> throw new IllegalArgumentException("unknown contestant " + contestant);
        }
    }

    static Contestant open(RedissonClient redisson, String contestant, String name, int limit, long leaseMs) {
        return switch (contestant) {
            case "redisson-semaphore" -> semaphore(redisson.getSemaphore(name), limit);
            case "redisson-permit" -> permit(redisson.getPermitExpirableSemaphore(name), limit, leaseMs);
            case "redisson-lock" -> lock(redisson.getLock(name), leaseMs);
            case "redisson-fair-lock" -> lock(redisson.getFairLock(name), leaseMs);
            default -> throw new IllegalArgumentException(contestant);
        };
    }

    /** Has no lease: what a dead process held is lost. */
    private static Contestant semaphore(RSemaphore semaphore, int limit) {
        // False, and no harm, where another driver of the same semaphore was first.
        semaphore.trySetPermits(limit);
        return new Contestant() {
            @Override
            public Object acquire(long waitMs) throws InterruptedException {
                return semaphore.tryAcquire(Duration.ofMillis(waitMs)) ? this : null;
            }

            @Override
            public void release(Object held) {
                semaphore.release();
            }
        };
    }

    private static Contestant permit(RPermitExpirableSemaphore semaphore, int limit, long leaseMs) {
        semaphore.trySetPermits(limit);
        return new Contestant() {
            @Override
            public Object acquire(long waitMs) throws InterruptedException {
                return semaphore.tryAcquire(waitMs, leaseMs, MILLISECONDS);
            }

            @Override
            public void release(Object held) {
                semaphore.release((String) held);
            }
        };
    }

    private static Contestant lock(RLock lock, long leaseMs) {
        return new Contestant() {
            @Override
            public Object acquire(long waitMs) throws InterruptedException {
                return lock.tryLock(waitMs, leaseMs, MILLISECONDS) ? this : null;
            }

            @Override
            public void release(Object held) {
                lock.unlock();
            }
        };
    }
}
