package nicekv.clients;

import static nicekv.clients.Cases.LONG;
import static nicekv.clients.Cases.equal;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

final class JedisCases {
    private final Jedis client;
    private final RedisProtocol protocol;

    private JedisCases(RedisProtocol protocol) {
        this.protocol = protocol;
        client = connect(protocol);
    }

    static Jedis connect(RedisProtocol protocol) {
        var config = DefaultJedisClientConfig.builder()
                .database(Cases.DATABASE)
                .protocol(protocol)
                .socketTimeoutMillis(20_000)
                .build();
        return new Jedis(new HostAndPort(Cases.HOST, Cases.PORT), config);
    }

    static void run() {
        for (RedisProtocol protocol : new RedisProtocol[] {RedisProtocol.RESP2, RedisProtocol.RESP3}) {
            var all = new JedisCases(protocol);
            var cases = new Cases("Jedis " + Cases.versionOf(Jedis.class) + " " + protocol);
            cases.run("transaction, keys with a tag", all::transaction);
            cases.run("transaction over many keys", all::transactionOfMany);
            cases.run("transaction with 5,000 bytes", all::transactionLong);
            cases.run("WATCH of a key that is written meanwhile", all::watch);
            cases.run("EVAL and EVALSHA", all::eval);
            cases.run("hashes", all::hashes);
            cases.run("scan", all::scan);
            cases.run("publish and subscribe", all::publish);
            cases.run("pipeline over many keys", all::pipeline);
            cases.run("set with NX and EX", all::set);
            all.client.flushDB();
            all.client.close();
        }
    }

    private void transaction() {
        try (Transaction transaction = client.multi()) {
            transaction.set("{t}:a", "1");
            Response<Long> n = transaction.incrBy("{t}:a", 4);
            transaction.hset("{t}:h", "f", "v");
            equal(transaction.exec(), List.of("OK", 5L, 1L));
            equal(n.get(), 5L);
        }
    }

    private void transactionOfMany() throws Exception {
        List<Object> replies = Cases.needsOnePartition(() -> {
            try (Transaction transaction = client.multi()) {
                for (int n = 0; n < 50; n += 1) {
                    transaction.set("many:" + n, "" + n);
                }
                return transaction.exec();
            }
        });
        equal(replies.size(), 50);
    }

    private void transactionLong() {
        try (Transaction transaction = client.multi()) {
            transaction.set("{l}:a", LONG);
            transaction.get("{l}:a");
            equal(transaction.exec(), List.of("OK", LONG));
        }
    }

    private void watch() {
        try (Jedis other = connect(protocol)) {
            client.watch("watch:n");
            other.set("watch:n", "1");
            Transaction lost = client.multi();
            lost.set("watch:n", "2");
            equal(lost.exec(), null);
            client.watch("watch:n");
            Transaction won = client.multi();
            won.incr("watch:n");
            equal(won.exec(), List.of(2L));
        }
    }

    private void eval() {
        String source = "redis.call('INCRBY', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])";
        equal(client.eval(source, 1, "eval:n", "3"), "3");
        equal(client.evalsha(client.scriptLoad(source), 1, "eval:n", "4"), "7");
    }

    private void hashes() {
        equal(client.hset("hash:a", Map.of("f", "1", "g", "two")), 2L);
        equal(client.hincrBy("hash:a", "f", 4), 5L);
        equal(client.hgetAll("hash:a"), Map.of("f", "5", "g", "two"));
        equal(client.hdel("hash:a", "g"), 1L);
        equal(client.hscan("hash:a", "0").getResult(), List.of(Map.entry("f", "5")));
    }

    private void scan() {
        for (int n = 0; n < 300; n += 1) {
            client.set("scan:" + n, "" + n);
        }
        Set<String> found = new HashSet<>();
        String cursor = "0";
        do {
            ScanResult<String> part = client.scan(cursor, new ScanParams().match("scan:*").count(50));
            found.addAll(part.getResult());
            cursor = part.getCursor();
        } while (!cursor.equals("0"));
        equal(found.size(), 300);
    }

    private void publish() throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        CountDownLatch confirmed = new CountDownLatch(1);
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int channels) {
                confirmed.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + ": " + message);
            }
        };
        Thread thread = new Thread(() -> {
            try (Jedis other = connect(protocol)) {
                other.subscribe(listener, "news");
            }
        });
        thread.start();
        equal(confirmed.await(5, TimeUnit.SECONDS), true);
        equal(client.publish("news", "hello"), 1L);
        equal(heard.poll(5, TimeUnit.SECONDS), "news: hello");
        listener.unsubscribe();
        thread.join(5000);
        equal(thread.isAlive(), false);
    }

    private void pipeline() {
        try (Pipeline pipeline = client.pipelined()) {
            for (int n = 0; n < 500; n += 1) {
                pipeline.set("plain:" + n, "" + n);
                pipeline.get("plain:" + n);
            }
            List<Object> replies = pipeline.syncAndReturnAll();
            for (int n = 0; n < 500; n += 1) {
                equal(replies.get(2 * n + 1), "" + n);
            }
        }
    }

    private void set() {
        equal(client.set("set:a", "1", SetParams.setParams().nx().ex(100)), "OK");
        equal(client.set("set:a", "2", SetParams.setParams().nx()), null);
        long left = client.ttl("set:a");
        equal(left > 0 && left <= 100, true);
    }
}
