package nicekv.clients;

import static nicekv.clients.Cases.equal;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisProtocol;

/**
 * What YCSB's Redis binding sends for records, in its core workloads A, B, C, D and F, with every value that is read
 * compared with what was written last. Its index of all keys, a sorted set, is left out, and with it workload E.
 */
final class YcsbCases {
    private static final int RECORDS = 200;
    private static final int OPERATIONS = 1000;
    private static final int FIELDS = 10;
    private static final int FIELD_BYTES = 100;

    private final Jedis client = JedisCases.connect(RedisProtocol.RESP2);
    private final Random random = new Random(1);
    /** What is there, as the one who writes knows it. */
    private final Map<String, Map<String, String>> records = new HashMap<>();
    private int inserted;

    static void run() {
        var all = new YcsbCases();
        var cases = new Cases("YCSB by Jedis");
        cases.run("load", all::load);
        cases.run("workload A: half updates", () -> all.mix(0.5, Write.UPDATE));
        cases.run("workload B: 5 % updates", () -> all.mix(0.05, Write.UPDATE));
        cases.run("workload C: reads", () -> all.mix(0, Write.UPDATE));
        cases.run("workload D: 5 % inserts, reads of the latest", () -> all.mix(0.05, Write.INSERT));
        cases.run("workload F: half read, modify, write", () -> all.mix(0.5, Write.MODIFY));
        cases.run("delete", all::delete);
        all.client.close();
    }

    private enum Write {
        UPDATE,
        INSERT,
        MODIFY
    }

    private void load() {
        for (int n = 0; n < RECORDS; n += 1) {
            insert();
        }
    }

    private void mix(double writes, Write kind) {
        for (int n = 0; n < OPERATIONS; n += 1) {
            boolean write = random.nextDouble() < writes;
            if (write && kind == Write.INSERT) {
                insert();
            } else if (write) {
                if (kind == Write.MODIFY) {
                    read(someKey(false));
                }
                update(someKey(false));
            } else {
                read(someKey(kind == Write.INSERT));
            }
        }
    }

    private void insert() {
        String key = "user" + Integer.toUnsignedString(inserted * 0x9E3779B1);
        inserted += 1;
        Map<String, String> fields = new HashMap<>();
        for (int n = 0; n < FIELDS; n += 1) {
            fields.put("field" + n, value());
        }
        equal(client.hmset(key, fields), "OK");
        records.put(key, fields);
    }

    private void update(String key) {
        Map<String, String> fields = Map.of("field" + random.nextInt(FIELDS), value());
        equal(client.hmset(key, fields), "OK");
        records.get(key).putAll(fields);
    }

    private void read(String key) {
        if (random.nextBoolean()) {
            equal(client.hgetAll(key), records.get(key));
            return;
        }
        String field = "field" + random.nextInt(FIELDS);
        equal(client.hmget(key, field), List.of(records.get(key).get(field)));
    }

    private void delete() {
        for (String key : records.keySet()) {
            equal(client.del(key), 1L);
            equal(client.hgetAll(key), Map.of());
        }
    }

    /** Few keys have most of the load; those that were inserted last, if so asked. */
    private String someKey(boolean latest) {
        int rank = (int) (inserted * Math.pow(random.nextDouble(), 3));
        int number = latest ? inserted - 1 - rank : rank;
        return "user" + Integer.toUnsignedString(number * 0x9E3779B1);
    }

    private String value() {
        StringBuilder text = new StringBuilder(FIELD_BYTES);
        for (int n = 0; n < FIELD_BYTES; n += 1) {
            text.append((char) (' ' + random.nextInt(95)));
        }
        return text.toString();
    }
}
