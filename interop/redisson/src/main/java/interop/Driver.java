package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.redisson.Redisson;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * Does with Redisson's semaphores what it is told on standard input, each order
 * on a thread of its own, and answers on standard output. Ends when its input does.
 *
 * <pre>
 * arguments:  single|mapped|cluster|cluster-plain address...     mapped: one server, names are put behind "app:"
 * order:      tag s|e name method argument...     s: RSemaphore, e: RPermitExpirableSemaphore
 *             tag methods                         lists what the semaphores' interfaces declare
 * argument:   i5 int, l5 long, d5 Duration of 5 ms, u TimeUnit.MILLISECONDS, tX String X, jX,Y List of X and Y
 * answer:     tag ok value                        null, or a list's elements with commas between
 *             tag error class: message; and the same for each cause
 * </pre>
 *
 * Methods are looked up by name, so that the driver builds with any Redisson.
 */
public final class Driver {
    private final RedissonClient redisson;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private Driver(RedissonClient redisson) {
        this.redisson = redisson;
    }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(Redisson.create(configure(args)));
        say("ready " + Redisson.class.getPackage().getImplementationVersion());
        driver.serve();
    }

    private static Config configure(String[] args) throws ReflectiveOperationException {
        Config config = new Config();
        config.setThreads(16);
        config.setNettyThreads(4);
        String[] addresses = Arrays.copyOfRange(args, 1, args.length);
        for (int i = 0; i < addresses.length; i++) {
            addresses[i] = "redis://" + addresses[i];
        }
        if (args[0].equals("single") || args[0].equals("mapped")) {
            SingleServerConfig single = config.useSingleServer();
            single.setAddress(addresses[0]).setConnectionMinimumIdleSize(2);
            if (args[0].equals("mapped")) {
                mapNames(single);
            }
            return config;
        }
        ClusterServersConfig cluster = config.useClusterServers().addNodeAddress(addresses);
        cluster.setMasterConnectionMinimumIdleSize(2);
        if (args[0].equals("cluster-plain")) {
            for (Method m : ClusterServersConfig.class.getMethods()) {
                if (m.getName().equals("setShardedSubscriptionMode")) {
                    for (Object mode : m.getParameterTypes()[0].getEnumConstants()) {
                        if (mode.toString().equals("OFF")) {
                            m.invoke(cluster, mode);
                        }
                    }
                }
            }
        }
        return config;
    }

    private static void mapNames(SingleServerConfig config) throws ReflectiveOperationException {
        for (Method m : SingleServerConfig.class.getMethods()) {
            if (m.getName().equals("setNameMapper") && !m.isBridge()) {
                Class<?> mapper = m.getParameterTypes()[0];
                m.invoke(config, Proxy.newProxyInstance(mapper.getClassLoader(), new Class<?>[] {mapper},
                        (proxy, method, names) -> method.getName().equals("map")
                                ? "app:" + names[0]
                                : ((String) names[0]).substring("app:".length())));
                return;
            }
        }
        throw new NoSuchMethodException("setNameMapper");
    }

    private void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            threads.execute(() -> obey(words));
        }
        // Threads may be blocked in acquire for ever: nothing to wait for.
        Runtime.getRuntime().halt(0);
    }

    private void obey(String[] words) {
        try {
            Object value = words[1].equals("methods") ? methods() : invoke(words);
            say(words[0] + " ok " + show(value));
        } catch (InvocationTargetException e) {
            fail(words[0], e.getCause());
        } catch (Throwable e) {
            fail(words[0], e);
        }
    }

    private static void fail(String tag, Throwable e) {
        StringBuilder text = new StringBuilder();
        for (Throwable t = e; t != null; t = t.getCause()) {
            text.append(t.getClass().getSimpleName()).append(": ").append(t.getMessage()).append("; ");
        }
        say(tag + " error " + text.toString().replaceAll("\\s+", " "));
    }

    private Object invoke(String[] words) throws ReflectiveOperationException {
        boolean counter = words[1].equals("s");
        Object target = counter ? redisson.getSemaphore(words[2]) : redisson.getPermitExpirableSemaphore(words[2]);
        Class<?> type = counter ? RSemaphore.class : RPermitExpirableSemaphore.class;
        Class<?>[] types = new Class<?>[words.length - 4];
        Object[] values = new Object[types.length];
        for (int i = 0; i < types.length; i++) {
            String text = words[i + 4].substring(1);
            switch (words[i + 4].charAt(0)) {
                case 'i' -> { types[i] = int.class; values[i] = Integer.valueOf(text); }
                case 'l' -> { types[i] = long.class; values[i] = Long.valueOf(text); }
                case 'd' -> { types[i] = Duration.class; values[i] = Duration.ofMillis(Long.parseLong(text)); }
                case 'u' -> { types[i] = TimeUnit.class; values[i] = TimeUnit.MILLISECONDS; }
                case 't' -> { types[i] = String.class; values[i] = text; }
                case 'j' -> { types[i] = List.class; values[i] = List.of(text.split(",")); }
                default -> throw new IllegalArgumentException("argument " + words[i + 4]);
            }
        }
        return type.getMethod(words[3], types).invoke(target, values);
    }

    /** Every method of the three semaphores, inherited ones and asynchronous twins left out. */
    private static List<String> methods() {
        List<String> all = new ArrayList<>();
        for (Class<?> type : List.of(Semaphore.class, RSemaphore.class, RPermitExpirableSemaphore.class)) {
            for (Method m : type.getDeclaredMethods()) {
                int open = m.getModifiers() & (java.lang.reflect.Modifier.PUBLIC | java.lang.reflect.Modifier.PROTECTED);
                if (open != 0 && !m.isSynthetic()) {
                    String parameters = Arrays.stream(m.getParameterTypes())
                            .map(Class::getSimpleName).collect(Collectors.joining(";"));
                    all.add(type.getSimpleName() + "." + m.getName() + "(" + parameters + ")");
                }
            }
        }
        return all;
    }

    private static String show(Object value) {
        if (value instanceof Collection<?> c) {
            return c.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return String.valueOf(value);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
