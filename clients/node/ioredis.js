import { once } from "node:events";
import { createRequire } from "node:module";
import { Redis } from "ioredis";
import { database, equal, host, long, needsOnePartition, port, run } from "./cases.js";

const { version } = createRequire(import.meta.url)("ioredis/package.json");
const connect = () => new Redis({ host, port, db: database, maxRetriesPerRequest: 1 });
const client = connect();

// The replies of a transaction or pipeline, or its first error.
function replies(results) {
  for (const [error] of results) {
    if (error) throw error;
  }
  return results.map(([, reply]) => reply);
}

const cases = {
  "multi, keys with a tag": async () => {
    const results = await client.multi().set("{m}:a", 1).incrby("{m}:a", 4).hset("{m}:h", "f", "v").get("{m}:a").exec();
    equal(replies(results), ["OK", 5, 1, "5"]);
  },
  "multi over many keys": async () => {
    const multi = client.multi();
    for (let n = 0; n < 50; n += 1) multi.set(`many:${n}`, n);
    const results = await needsOnePartition(() => multi.exec());
    equal(replies(results).length, 50);
  },
  "multi with 5,000 bytes": async () => {
    equal(replies(await client.multi().set("{l}:a", long).get("{l}:a").exec()), ["OK", long]);
  },
  "watch of a key that is written meanwhile": async () => {
    const other = connect();
    await client.watch("watch:n");
    await other.set("watch:n", 1);
    equal(await client.multi().set("watch:n", 2).exec(), null);
    await client.watch("watch:n");
    equal(replies(await client.multi().incr("watch:n").exec()), [2]);
    other.disconnect();
  },
  defineCommand: async () => {
    const lua = "redis.call('INCRBY', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), ARGV[2]}";
    client.defineCommand("addAndEcho", { numberOfKeys: 1, lua });
    equal(await client.addAndEcho("script:n", 3, "x"), ["3", "x"]);
    equal(await client.addAndEcho("script:n", 4, "y"), ["7", "y"]);
  },
  eval: async () => {
    equal(await client.eval("return {KEYS[1], ARGV[1], 3}", 1, "k", "v"), ["k", "v", 3]);
  },
  "subscribe and psubscribe": async () => {
    const listener = connect();
    await listener.subscribe("news");
    await listener.psubscribe("new*");
    const heard = Promise.all([once(listener, "message"), once(listener, "pmessage")]);
    equal(await client.publish("news", "hello"), 2);
    equal(await heard, [["news", "hello"], ["new*", "news", "hello"]]);
    listener.disconnect();
  },
  hashes: async () => {
    equal(await client.hset("hash:a", { f: 1, g: "two" }), 2);
    equal(await client.hincrby("hash:a", "f", 4), 5);
    equal(await client.hgetall("hash:a"), { f: "5", g: "two" });
    equal(await client.hmget("hash:a", "f", "none"), ["5", null]);
    let fields = 0;
    for await (const part of client.hscanStream("hash:a")) fields += part.length / 2;
    equal(fields, 2);
  },
  scanStream: async () => {
    await client.mset(Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`scan:${n}`, n])));
    const found = new Set();
    for await (const keys of client.scanStream({ match: "scan:*", count: 50 })) keys.forEach((key) => found.add(key));
    equal(found.size, 300);
  },
  "pipeline over many keys": async () => {
    const pipeline = client.pipeline();
    for (let n = 0; n < 500; n += 1) pipeline.set(`plain:${n}`, n).get(`plain:${n}`);
    const values = replies(await pipeline.exec()).filter((_, place) => place % 2 === 1);
    equal(values, Array.from({ length: 500 }, (_, n) => `${n}`));
  },
  "pipeline with 5,000 bytes": async () => {
    equal(replies(await client.pipeline().set("l:p", long).get("l:p").exec()), ["OK", long]);
  },
};

await run(`ioredis ${version}`, cases);
await client.flushdb();
client.disconnect();
