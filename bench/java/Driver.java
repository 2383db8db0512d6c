import static java.util.concurrent.TimeUnit.MILLISECONDS;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.config.*;

/**
 * Drives Redisson for the bench: threads acquire, hold and release. What is said,
 * in lines of JSON, is told in lab/measure/driver.go.
 */
public final class Driver {
    /** Who still waits this long after the time was up is sent away, uncounted. */
    private static final long GRACE_NS = 5_000_000_000L;

    private static final Gson GSON =
            new GsonBuilder().setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES).create();

    record Setup(String url, String contestant, String name, int limit, int workers, long holdUs, long leaseMs) {}

    record Command(long runMs) {}

    record Answer(long done, long elapsedNs, long holdNs, List<long[]> waits, long unserved, long cpuNs, long maxHeld) {}

    /** Waits so long; returns what release wants, or null when it was too long. */
    interface Acquire {
        Object call(long waitMs) throws InterruptedException;
    }

    /** Is called by the thread that acquired: Redisson's locks belong to threads. */
    interface Release {
        void call(Object held);
    }

    private static Acquire acquire;
    private static Release release;

    public static void main(String[] args) {
        try {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            Setup setup = GSON.fromJson(in.readLine(), Setup.class);
            open(setup);
            ExecutorService threads = Executors.newFixedThreadPool(setup.workers);
            say(Map.of("ready", true, "versions", Map.of(
                    "java", System.getProperty("java.version"),
                    "redisson", Redisson.class.getPackage().getImplementationVersion())));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                say(run(threads, setup, GSON.fromJson(line, Command.class).runMs));
            }
        } catch (Throwable e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            say(Map.of("error", String.valueOf(cause)));
            System.exit(1);
        }
        System.exit(0); // nothing is held between rounds
    }

    private static void say(Object answer) {
        System.out.println(GSON.toJson(answer));
        System.out.flush();
    }

    private static void open(Setup s) {
        RedissonClient redisson = connect(s);
        switch (s.contestant) {
            case "redisson-semaphore" -> { // has no lease: what a dead process held is lost
                RSemaphore semaphore = redisson.getSemaphore(s.name);
                semaphore.trySetPermits(s.limit); // false, and no harm, where another process was first
                acquire = waitMs -> semaphore.tryAcquire(Duration.ofMillis(waitMs)) ? s : null;
                release = held -> semaphore.release();
            }
            case "redisson-permit" -> {
                RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(s.name);
                semaphore.trySetPermits(s.limit);
                acquire = waitMs -> semaphore.tryAcquire(waitMs, s.leaseMs, MILLISECONDS);
                release = held -> semaphore.release((String) held);
            }
            case "redisson-lock", "redisson-fair-lock" -> {
                RLock lock = s.contestant.equals("redisson-lock") ? redisson.getLock(s.name) : redisson.getFairLock(s.name);
                acquire = waitMs -> lock.tryLock(waitMs, s.leaseMs, MILLISECONDS) ? s : null;
                release = held -> lock.unlock();
            }
            default -> throw new IllegalArgumentException("unknown contestant " + s.contestant);
        }
    }

    /**
     * Redisson with its defaults, where they do. Its pool of 64 connections is
     * enough for any number of workers: commands queue for one, and who waits for
     * a permit needs none. But its fair lock subscribes to a channel for each
     * waiting thread, and fails with more threads than subscriptions: by default
     * 5 on each of 50 connections.
     */
    private static RedissonClient connect(Setup s) {
        Config config = new Config();
        SingleServerConfig server = config.useSingleServer().setAddress(s.url);
        int needed = s.workers / server.getSubscriptionsPerConnection() + 1;
        server.setSubscriptionConnectionPoolSize(Math.max(server.getSubscriptionConnectionPoolSize(), needed));
        return Redisson.create(config);
    }

    /** What all workers did in a round. */
    private static final class Tally {
        final Map<Long, AtomicLong> waits = new ConcurrentHashMap<>();
        final AtomicLong done = new AtomicLong();
        final AtomicLong elapsed = new AtomicLong(1); // until the last pair was done
        final AtomicLong slept = new AtomicLong();
        final AtomicLong unserved = new AtomicLong();
        final AtomicInteger held = new AtomicInteger();
        final AtomicInteger maxHeld = new AtomicInteger();
        final long start = System.nanoTime();
        volatile boolean failed;

        /** Keeps two digits, to keep the list short. */
        void waited(long ns) {
            long unit = 1;
            while (ns / unit >= 100) {
                unit *= 10;
            }
            waits.computeIfAbsent(Math.round((double) ns / unit) * unit, k -> new AtomicLong()).incrementAndGet();
        }
    }

    private static Answer run(ExecutorService threads, Setup s, long runMs) throws Exception {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = process.getProcessCpuTime();
        Tally tally = new Tally();
        Callable<Void> work = () -> work(tally, tally.start + runMs * 1_000_000, s.holdUs * 1000);
        for (Future<Void> ended : threads.invokeAll(Collections.nCopies(s.workers, work))) {
            ended.get();
        }
        List<long[]> waits = new ArrayList<>();
        tally.waits.forEach((ns, count) -> waits.add(new long[] {ns, count.get()}));
        return new Answer(tally.done.get(), tally.elapsed.get(), tally.slept.get(), waits, tally.unserved.get(),
                process.getProcessCpuTime() - cpu, tally.maxHeld.get());
    }

    private static Void work(Tally tally, long deadline, long holdNs) throws InterruptedException {
        try {
            for (long asked = System.nanoTime(); asked - deadline < 0 && !tally.failed; asked = System.nanoTime()) {
                Object permit = acquire.call((deadline - asked + GRACE_NS) / 1_000_000);
                long got = System.nanoTime();
                if (permit == null) {
                    // Redisson's locks answer a failure to subscribe like this.
                    if (got - deadline < GRACE_NS / 2) {
                        throw new IllegalStateException("acquire gave up early");
                    }
                    tally.unserved.incrementAndGet();
                    tally.waited(got - asked);
                    break;
                }
                tally.maxHeld.accumulateAndGet(tally.held.incrementAndGet(), Math::max);
                long slept = 0;
                while (slept < holdNs) { // parks: Thread.sleep has whole milliseconds before Java 21
                    LockSupport.parkNanos(holdNs - slept);
                    slept = System.nanoTime() - got;
                }
                tally.slept.addAndGet(slept);
                tally.held.decrementAndGet(); // before the release, so that maxHeld is never too high
                release.call(permit);
                tally.elapsed.accumulateAndGet(System.nanoTime() - tally.start, Math::max);
                tally.done.incrementAndGet();
                tally.waited(got - asked);
            }
        } catch (Throwable e) {
            tally.failed = true; // the others finish what they have, and stop
            throw e;
        }
        return null;
    }
}
