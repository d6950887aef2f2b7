package nicekv.clients;

import static nicekv.clients.Cases.LONG;
import static nicekv.clients.Cases.equal;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

final class LettuceCases {
    private final RedisClient client;
    private final StatefulRedisConnection<String, String> connection;
    private final RedisCommands<String, String> commands;

    private LettuceCases(ProtocolVersion protocol) {
        RedisURI uri = RedisURI.builder()
                .withHost(Cases.HOST)
                .withPort(Cases.PORT)
                .withDatabase(Cases.DATABASE)
                .withTimeout(Duration.ofSeconds(20))
                .build();
        client = RedisClient.create(uri);
        client.setOptions(ClientOptions.builder().protocolVersion(protocol).build());
        connection = client.connect();
        commands = connection.sync();
    }

    static void run() {
        for (ProtocolVersion protocol : new ProtocolVersion[] {ProtocolVersion.RESP2, ProtocolVersion.RESP3}) {
            var all = new LettuceCases(protocol);
            var cases = new Cases("Lettuce " + Cases.versionOf(RedisClient.class) + " " + protocol);
            cases.run("transaction, keys with a tag", all::transaction);
            cases.run("transaction over many keys", all::transactionOfMany);
            cases.run("transaction with 5,000 bytes", all::transactionLong);
            cases.run("WATCH of a key that is written meanwhile", all::watch);
            cases.run("EVAL and EVALSHA", all::eval);
            cases.run("hashes", all::hashes);
            cases.run("scan", all::scan);
            cases.run("publish and subscribe", all::publish);
            cases.run("asynchronous commands over many keys", all::asynchronous);
            all.commands.flushdb();
            all.connection.close();
            all.client.shutdown();
        }
    }

    private void transaction() {
        commands.multi();
        commands.set("{t}:a", "1");
        commands.incrby("{t}:a", 4);
        commands.hset("{t}:h", "f", "v");
        equal(commands.exec().stream().toList(), List.of("OK", 5L, true));
    }

    private void transactionOfMany() throws Exception {
        TransactionResult replies = Cases.needsOnePartition(() -> {
            commands.multi();
            for (int n = 0; n < 50; n += 1) {
                commands.set("many:" + n, "" + n);
            }
            return commands.exec();
        });
        equal(replies.size(), 50);
    }

    private void transactionLong() {
        commands.multi();
        commands.set("{l}:a", LONG);
        commands.get("{l}:a");
        equal(commands.exec().stream().toList(), List.of("OK", LONG));
    }

    private void watch() {
        try (StatefulRedisConnection<String, String> other = client.connect()) {
            commands.watch("watch:n");
            other.sync().set("watch:n", "1");
            commands.multi();
            commands.set("watch:n", "2");
            equal(commands.exec().wasDiscarded(), true);
            commands.watch("watch:n");
            commands.multi();
            commands.incr("watch:n");
            equal(commands.exec().stream().toList(), List.of(2L));
        }
    }

    private void eval() {
        String source = "redis.call('INCRBY', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
        String[] keys = {"eval:n"};
        equal(commands.eval(source, ScriptOutputType.VALUE, keys, "3"), "3");
        equal(commands.evalsha(commands.scriptLoad(source), ScriptOutputType.VALUE, keys, "4"), "7");
    }

    private void hashes() {
        equal(commands.hset("hash:a", Map.of("f", "1", "g", "two")), 2L);
        equal(commands.hincrby("hash:a", "f", 4), 5L);
        equal(commands.hgetall("hash:a"), Map.of("f", "5", "g", "two"));
        equal(commands.hmget("hash:a", "f", "none").get(1).hasValue(), false);
        equal(commands.hscan("hash:a").getMap(), Map.of("f", "5", "g", "two"));
    }

    private void scan() {
        for (int n = 0; n < 300; n += 1) {
            commands.set("scan:" + n, "" + n);
        }
        Set<String> found = new HashSet<>();
        ScanIterator.scan(commands, ScanArgs.Builder.matches("scan:*").limit(50)).forEachRemaining(found::add);
        equal(found.size(), 300);
        KeyScanCursor<String> first = commands.scan(ScanArgs.Builder.matches("scan:*").limit(50));
        equal(first.isFinished(), false);
    }

    private void publish() throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        try (StatefulRedisPubSubConnection<String, String> listener = client.connectPubSub()) {
            listener.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String channel, String message) {
                    heard.add(channel + ": " + message);
                }

                @Override
                public void message(String pattern, String channel, String message) {
                    heard.add(pattern + ": " + message);
                }
            });
            listener.sync().subscribe("news");
            listener.sync().psubscribe("new*");
            equal(commands.publish("news", "hello"), 2L);
            Set<String> both = new HashSet<>();
            both.add(heard.poll(5, TimeUnit.SECONDS));
            both.add(heard.poll(5, TimeUnit.SECONDS));
            equal(both, Set.of("news: hello", "new*: hello"));
        }
    }

    private void asynchronous() throws Exception {
        RedisAsyncCommands<String, String> async = connection.async();
        List<RedisFuture<String>> values = new ArrayList<>();
        for (int n = 0; n < 500; n += 1) {
            async.set("plain:" + n, "" + n);
            values.add(async.get("plain:" + n));
        }
        equal(LettuceFutures.awaitAll(Duration.ofSeconds(20), values.toArray(new RedisFuture[0])), true);
        for (int n = 0; n < 500; n += 1) {
            equal(values.get(n).get(), "" + n);
        }
    }
}
