package nicekv.clients;

import static nicekv.clients.Cases.LONG;
import static nicekv.clients.Cases.equal;

import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

final class RedissonCases {
    private final RedissonClient client;

    private RedissonCases() {
        Config config = new Config();
        config.useSingleServer()
                .setAddress("redis://" + Cases.HOST + ":" + Cases.PORT)
                .setDatabase(Cases.DATABASE)
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(8)
                .setTimeout(10_000);
        client = Redisson.create(config);
    }

    static void run() {
        var all = new RedissonCases();
        var cases = new Cases("Redisson " + Cases.versionOf(Redisson.class));
        cases.run("bucket, compareAndSet", all::bucket);
        cases.run("bucket, compareAndSet with 5,000 bytes", all::bucketLong);
        cases.run("lock, held twice", all::lockTwice);
        cases.run("lock that another thread waits for", all::lockWaited);
        cases.run("atomic long", all::atomicLong);
        cases.run("map", all::map);
        cases.run("topic", all::topic);
        all.client.getKeys().flushdb();
        all.client.shutdown();
    }

    private void bucket() {
        RBucket<String> bucket = client.getBucket("bucket");
        bucket.set("one");
        equal(bucket.compareAndSet("other", "two"), false);
        equal(bucket.compareAndSet("one", "two"), true);
        equal(bucket.get(), "two");
        equal(bucket.setIfAbsent("three"), false);
        equal(bucket.getAndDelete(), "two");
        equal(bucket.compareAndSet(null, "four"), true);
    }

    private void bucketLong() {
        RBucket<String> bucket = client.getBucket("bucket:long", StringCodec.INSTANCE);
        bucket.set(LONG);
        equal(bucket.compareAndSet(LONG, LONG + "!"), true);
        equal(bucket.get(), LONG + "!");
    }

    private void lockTwice() {
        RLock lock = client.getLock("lock:twice");
        lock.lock(20, TimeUnit.SECONDS);
        equal(lock.tryLock(), true);
        equal(lock.getHoldCount(), 2);
        lock.unlock();
        equal(lock.isHeldByCurrentThread(), true);
        lock.unlock();
        equal(lock.isLocked(), false);
    }

    private void lockWaited() throws Exception {
        RLock lock = client.getLock("lock:waited");
        lock.lock();
        CompletableFuture<Boolean> refused = inThread(() -> lock.tryLock(0, TimeUnit.SECONDS));
        equal(refused.get(10, TimeUnit.SECONDS), false);
        CompletableFuture<Boolean> waits = inThread(() -> {
            boolean got = lock.tryLock(10, 20, TimeUnit.SECONDS);
            lock.unlock();
            return got;
        });
        TimeUnit.MILLISECONDS.sleep(300);
        equal(waits.isDone(), false);
        lock.unlock();
        equal(waits.get(10, TimeUnit.SECONDS), true);
    }

    private void atomicLong() {
        RAtomicLong number = client.getAtomicLong("atomic");
        equal(number.incrementAndGet(), 1L);
        equal(number.addAndGet(9), 10L);
        equal(number.compareAndSet(10, 20), true);
        equal(number.compareAndSet(10, 30), false);
        equal(number.getAndDecrement(), 20L);
    }

    private void map() {
        RMap<String, Integer> map = client.getMap("map");
        equal(map.put("a", 1), null);
        equal(map.put("a", 2), 1);
        equal(map.putIfAbsent("a", 3), 2);
        equal(map.replace("a", 2, 4), true);
        map.putAll(Map.of("b", 5, "c", 6));
        equal(map.readAllMap(), Map.of("a", 4, "b", 5, "c", 6));
        equal(map.remove("c"), 6);
        equal(map.size(), 2);
    }

    private void topic() throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        RTopic topic = client.getTopic("topic");
        int listener = topic.addListener(String.class, (channel, message) -> heard.add(channel + ": " + message));
        equal(topic.publish("hello"), 1L);
        equal(heard.poll(5, TimeUnit.SECONDS), "topic: hello");
        topic.removeListener(listener);
        equal(topic.publish("nobody"), 0L);
    }

    private interface Body {
        boolean run() throws Exception;
    }

    private static CompletableFuture<Boolean> inThread(Body body) {
        CompletableFuture<Boolean> result = new CompletableFuture<>();
        new Thread(() -> {
            try {
                result.complete(body.run());
            } catch (Exception error) {
                result.completeExceptionally(error);
            }
        }).start();
        return result;
    }
}
