import { createRequire } from "node:module";
import { createClient, defineScript } from "redis";
import { database, equal, host, long, needsOnePartition, port, run } from "./cases.js";

const { version } = createRequire(import.meta.url)("redis/package.json");

const addAndEcho = defineScript({
  NUMBER_OF_KEYS: 1,
  SCRIPT: "redis.call('INCRBY', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), ARGV[2]}",
  parseCommand(parser, key, amount, text) {
    parser.pushKey(key);
    parser.push(`${amount}`, text);
  },
  transformReply: undefined,
});

async function connect(protocol) {
  const client = createClient({ socket: { host, port }, database, RESP: protocol, scripts: { addAndEcho } });
  client.on("error", (error) => console.error(error));
  return await client.connect();
}

const casesOf = (client, protocol) => ({
  "multi, keys with a tag": async () => {
    const replies = await client.multi().set("{m}:a", "1").incrBy("{m}:a", 4).hSet("{m}:h", "f", "v").get("{m}:a").exec();
    equal(replies, ["OK", 5, 1, "5"]);
  },
  "multi over many keys": async () => {
    const multi = client.multi();
    for (let n = 0; n < 50; n += 1) multi.set(`many:${n}`, `${n}`);
    equal((await needsOnePartition(() => multi.exec())).length, 50);
  },
  "multi with 5,000 bytes": async () => {
    equal(await client.multi().set("{l}:a", long).get("{l}:a").exec(), ["OK", long]);
  },
  "watch of a key that is written meanwhile": async () => {
    const other = await connect(protocol);
    await client.watch("watch:n");
    await other.set("watch:n", "1");
    let refused = "executed";
    await client.multi().set("watch:n", "2").exec().catch((error) => (refused = error.constructor.name));
    equal(refused, "WatchError");
    await client.watch("watch:n");
    equal(await client.multi().incr("watch:n").exec(), [2]);
    await other.close();
  },
  "defineScript": async () => {
    equal(await client.addAndEcho("script:n", 3, "x"), ["3", "x"]);
    equal(await client.addAndEcho("script:n", 4, "y"), ["7", "y"]);
  },
  eval: async () => {
    equal(await client.eval("return {KEYS[1], ARGV[1], 3}", { keys: ["k"], arguments: ["v"] }), ["k", "v", 3]);
  },
  "subscribe and pSubscribe": async () => {
    const listener = await connect(protocol);
    const heard = [];
    const both = new Promise((resolve) => {
      const hear = (message, channel) => heard.push(`${channel}: ${message}`) === 2 && resolve();
      listener.subscribe("news", hear).then(() => listener.pSubscribe("new*", hear)).then(async () => {
        equal(await client.publish("news", "hello"), 2);
      });
    });
    await both;
    equal(heard, ["news: hello", "news: hello"]);
    await listener.close();
  },
  hashes: async () => {
    equal(await client.hSet("hash:a", { f: 1, g: "two" }), 2);
    equal(await client.hIncrBy("hash:a", "f", 4), 5);
    equal({ ...(await client.hGetAll("hash:a")) }, { f: "5", g: "two" });
    equal(await client.hmGet("hash:a", ["f", "none"]), ["5", null]);
  },
  scanIterator: async () => {
    await client.mSet(Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`scan:${n}`, `${n}`])));
    const found = new Set();
    for await (const keys of client.scanIterator({ MATCH: "scan:*", COUNT: 50 })) keys.forEach((key) => found.add(key));
    equal(found.size, 300);
  },
  "pipeline over many keys": async () => {
    const numbers = Array.from({ length: 500 }, (_, n) => `${n}`);
    await Promise.all(numbers.map((n) => client.set(`plain:${n}`, n)));
    equal(await Promise.all(numbers.map((n) => client.get(`plain:${n}`))), numbers);
  },
  "execAsPipeline with 5,000 bytes": async () => {
    equal(await client.multi().set("l:p", long).get("l:p").execAsPipeline(), ["OK", long]);
  },
});

for (const protocol of [2, 3]) {
  const client = await connect(protocol);
  await run(`node-redis ${version} RESP${protocol}`, casesOf(client, protocol));
  await client.flushDb();
  await client.close();
}
