package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/** Lets all workers loop for a while, and counts what they did. */
final class Rounds {
    /** Who still waits this long after the time was up is sent away, uncounted. */
    private static final long GRACE_NS = TimeUnit.SECONDS.toNanos(5);

    record Answer(long done, long elapsedNs, long holdNs, long[][] waits, long cpuNs, int maxHeld) {}

    /** What one worker did; its own until the round is over. */
    private static final class Tally {
        final Map<Long, Long> waits = new HashMap<>();
        long done;
        long holdNs;
        long end = Long.MIN_VALUE;
        int maxHeld;
    }

    private final Contestant contestant;
    private final int workers;
    private final long holdNs;
    private final ThreadPoolExecutor threads;
    private final AtomicInteger held = new AtomicInteger();
    private volatile boolean failed;

    Rounds(Contestant contestant, int workers, long holdNs) {
        this.contestant = contestant;
        this.workers = workers;
        this.holdNs = holdNs;
        threads = new ThreadPoolExecutor(workers, workers, 0, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
        threads.prestartAllCoreThreads();
    }

    Answer run(long runMs) throws Exception {
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = process.getProcessCpuTime();
        long start = System.nanoTime();
        long deadline = start + TimeUnit.MILLISECONDS.toNanos(runMs);
        Callable<Tally> work = () -> work(deadline);
        List<Future<Tally>> ended = threads.invokeAll(Collections.nCopies(workers, work));

        List<Tally> tallies = new ArrayList<>();
        for (Future<Tally> tally : ended) {
            tallies.add(tally.get());
        }
        long done = 0;
        long slept = 0;
        long elapsed = 0;
        int maxHeld = 0;
        Map<Long, Long> waits = new TreeMap<>();
        for (Tally tally : tallies) {
            done += tally.done;
            slept += tally.holdNs;
            maxHeld = Math.max(maxHeld, tally.maxHeld);
            tally.waits.forEach((ns, count) -> waits.merge(ns, count, Long::sum));
            if (tally.done > 0) {
                elapsed = Math.max(elapsed, tally.end - start);
            }
        }
        if (done == 0) {
            elapsed = System.nanoTime() - start;
        }
        long[][] pairs = waits.entrySet().stream()
                .map(e -> new long[] {e.getKey(), e.getValue()}).toArray(long[][]::new);
        return new Answer(done, elapsed, slept, pairs, process.getProcessCpuTime() - cpu, maxHeld);
    }

    private Tally work(long deadline) throws InterruptedException {
        Tally tally = new Tally();
        try {
            for (long asked = System.nanoTime(); asked - deadline < 0 && !failed; asked = System.nanoTime()) {
                Object permit = contestant.acquire(TimeUnit.NANOSECONDS.toMillis(deadline - asked + GRACE_NS));
                long got = System.nanoTime();
                if (permit == null) {
                    // Redisson's locks answer a failure to subscribe like this.
                    if (got - deadline < GRACE_NS / 2) {
                        throw new IllegalStateException("acquire gave up early");
                    }
                    break;
                }
                tally.maxHeld = Math.max(tally.maxHeld, held.incrementAndGet());
                if (holdNs > 0) {
                    tally.holdNs += hold(got);
                }
                held.decrementAndGet(); // before the release, so that maxHeld is never too high
                contestant.release(permit);
                tally.end = System.nanoTime();
                tally.done++;
                tally.waits.merge(round(got - asked), 1L, Long::sum);
            }
        } catch (Throwable e) {
            failed = true; // the others finish what they have, and stop
            throw e;
        }
        return tally;
    }

    /** Sleeps, and says how long. Parks, as Thread.sleep has whole milliseconds before Java 21. */
    private long hold(long since) {
        long slept = System.nanoTime() - since;
        while (slept < holdNs) {
            LockSupport.parkNanos(holdNs - slept);
            slept = System.nanoTime() - since;
        }
        return slept;
    }

    /** To two significant digits, to keep the list of waits short. */
    private static long round(long ns) {
        long unit = 1;
        while (ns / unit >= 100) {
            unit *= 10;
        }
        return Math.round((double) ns / unit) * unit;
    }
}
