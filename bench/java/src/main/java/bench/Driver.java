package bench;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonParseException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.api.redisnode.RedisNodes;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * Drives Redisson for the bench: W threads acquire, hold and release, as commands
 * on standard input tell them to.
 *
 * <pre>
 * arguments  --url redis://127.0.0.1:6379 --contestant C --name S --limit N --workers W --hold-us H --lease-ms L
 * says       {"ready":true,"versions":{…}}
 * told       {"run_ms":1000}   says  {"done":…,"elapsed_ns":…,"hold_ns":…,"waits":[[ns,count],…],"cpu_ns":…,"max_held":…}
 * told       {"quit":true}, or the input ends: exits 0
 * fails with one line {"error":"…"} and 1
 * </pre>
 */
public final class Driver {
    private static final long CONNECT_SECONDS = 10;
    private static final Set<String> OPTIONS =
            Set.of("url", "contestant", "name", "limit", "workers", "hold-us", "lease-ms");
    private static final Gson GSON = new GsonBuilder()
            .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
            .create();

    private record Command(long runMs, boolean quit) {}

    private record Ready(boolean ready, Map<String, String> versions) {}

    private record Failure(String error) {}

    public static void main(String[] args) {
        try {
            drive(options(args));
        } catch (Throwable e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            say(new Failure(String.valueOf(cause).replaceAll("\\s+", " ")));
            System.exit(1);
        }
        System.exit(0);
    }

    private static void drive(Map<String, String> options) throws Exception {
        String contestant = options.get("contestant");
        int limit = (int) whole(options, "limit", 1);
        int workers = (int) whole(options, "workers", 1);
        long holdNs = TimeUnit.MICROSECONDS.toNanos(whole(options, "hold-us", 0));
        long leaseMs = whole(options, "lease-ms", 1);
        Contestant.check(contestant, limit);

        RedissonClient redisson = connect(options.get("url"), workers);
        Contestant gate = Contestant.open(redisson, contestant, options.get("name"), limit, leaseMs);
        Rounds rounds = new Rounds(gate, workers, holdNs);
        say(new Ready(true, Map.of(
                "java", System.getProperty("java.version"),
                "redisson", Redisson.class.getPackage().getImplementationVersion())));

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Command command = parse(line);
            if (command.quit) {
                break;
            }
            Rounds.Answer answer = rounds.run(command.runMs);
            // Who only waited did not notice if the server went away.
            if (!redisson.getRedisNodes(RedisNodes.SINGLE).pingAll()) {
                throw new IOException("the server does not answer any more");
            }
            say(answer);
        }
        // Nothing is held between rounds.
        redisson.shutdown();
    }

    private static Map<String, String> options(String[] args) {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i < args.length; i += 2) {
            String name = args[i].startsWith("--") ? args[i].substring(2) : args[i];
            if (!OPTIONS.contains(name) || i + 1 == args.length) {
                throw new IllegalArgumentException("unknown option, or one without value: " + args[i]);
            }
            options.put(name, args[i + 1]);
        }
        for (String name : OPTIONS) {
            if (!options.containsKey(name)) {
                throw new IllegalArgumentException("--" + name + " is missing");
            }
        }
        return options;
    }

    private static long whole(Map<String, String> options, String name, long least) {
        String text = options.get(name);
        if (!text.matches("\\d{1,9}") || Long.parseLong(text) < least) {
            throw new IllegalArgumentException("--" + name + " " + text + ": want a whole number from " + least);
        }
        return Long.parseLong(text);
    }

    /**
     * Redisson with its defaults, where they do. Its pool of 64 connections is
     * enough for any number of workers: commands queue for one, and who waits for
     * a permit needs none. But its fair lock subscribes to a channel for each
     * waiting thread, and fails with more threads than subscriptions: by default
     * 5 on each of 50 connections.
     */
    private static RedissonClient connect(String url, int workers) throws Exception {
        Config config = new Config();
        SingleServerConfig server = config.useSingleServer().setAddress(url);
        int needed = workers / server.getSubscriptionsPerConnection() + 1;
        server.setSubscriptionConnectionPoolSize(Math.max(server.getSubscriptionConnectionPoolSize(), needed));
        try {
            return CompletableFuture.supplyAsync(() -> Redisson.create(config)).get(CONNECT_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new TimeoutException(url + " does not answer");
        }
    }

    private static Command parse(String line) {
        Command command = null;
        try {
            command = GSON.fromJson(line, Command.class);
        } catch (JsonParseException e) {
            // told below
        }
        if (command == null || (!command.quit && command.runMs <= 0)) {
            throw new IllegalArgumentException("malformed command: " + line);
        }
        return command;
    }

    private static void say(Object answer) {
        System.out.println(GSON.toJson(answer));
        System.out.flush();
    }
}
