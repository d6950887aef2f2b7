"""redis-py, by RESP2 and by RESP3."""

import time

import redis

from cases import DATABASE, HOST, LONG, PORT, Library, equal, in_threads, needs_one_partition, refused

library = Library("redis-py")


def connect(protocol, **options):
    return redis.Redis(HOST, PORT, DATABASE, protocol=protocol, socket_timeout=20, **options)


@library.case("pipeline, by default a transaction")
def pipeline(client):
    with client.pipeline() as pipe:
        pipe.set("{p}:a", 1).incr("{p}:a").expire("{p}:a", 100).hset("{p}:h", "f", "v").get("{p}:a")
        equal(pipe.execute(), [True, 2, True, 1, b"2"])


@library.case("pipeline of a transaction over many keys")
def pipeline_of_many(client):
    def fill():
        with client.pipeline() as pipe:
            for number in range(50):
                pipe.set(f"many:{number}", number)
            return pipe.execute()

    equal(needs_one_partition(fill), [True] * 50)


@library.case("pipeline without transaction over many keys")
def pipeline_plain(client):
    with client.pipeline(transaction=False) as pipe:
        for number in range(500):
            pipe.set(f"plain:{number}", number)
        for number in range(500):
            pipe.get(f"plain:{number}")
        equal(pipe.execute(), [True] * 500 + [b"%d" % number for number in range(500)])


@library.case("Lock of several threads")
def lock(client):
    client.set("lock:counter", 0)

    def count():
        for _ in range(10):
            with client.lock("lock:name", timeout=20, sleep=0.002, blocking_timeout=20):
                value = int(client.get("lock:counter"))
                time.sleep(0.0005)
                client.set("lock:counter", value + 1)

    in_threads(6, count)
    equal(int(client.get("lock:counter")), 60)
    equal(client.exists("lock:name"), 0)


@library.case("Lock that another one holds, extended and lost")
def lock_of_another(client):
    mine = client.lock("lock:other", timeout=20)
    equal(mine.acquire(), True)
    equal(client.lock("lock:other", timeout=20).acquire(blocking=False), False)
    equal(mine.extend(20), True)
    equal(20 < client.ttl("lock:other") <= 40, True)
    equal(mine.reacquire(), True)
    client.set("lock:other", "another's")
    try:
        mine.release()
    except redis.exceptions.LockNotOwnedError:
        return
    raise AssertionError("a lock that is another's was released")


@library.case("register_script")
def script(client):
    multiply = client.register_script("local v = redis.call('GET', KEYS[1]) return tonumber(v) * ARGV[1]")
    client.set("script:a", 7)
    equal(multiply(keys=["script:a"], args=[6]), 42)
    with client.pipeline() as pipe:
        pipe.set("script:a", 8)
        multiply(keys=["script:a"], args=[6], client=pipe)
        equal(pipe.execute(), [True, 48])


@library.case("transaction with WATCH, against other writers")
def transaction(client):
    client.set("watch:n", 0)

    def add(pipe):
        value = int(pipe.get("watch:n"))
        pipe.multi()
        pipe.set("watch:n", value + 1)

    def repeat():
        for _ in range(10):
            client.transaction(add, "watch:n")

    in_threads(4, repeat)
    equal(int(client.get("watch:n")), 40)


@library.case("WATCH of a key that is written meanwhile")
def watch_error(client):
    with client.pipeline() as pipe:
        client.set("watch:x", 1)
        pipe.watch("watch:x")
        client.set("watch:x", 2)
        pipe.multi()
        pipe.set("watch:x", 3)
        try:
            pipe.execute()
        except redis.WatchError:
            equal(client.get("watch:x"), b"2")
            return
    raise AssertionError("executed")


@library.case("pubsub, channels and patterns")
def pubsub(client):
    with client.pubsub() as listener:
        listener.subscribe("news")
        listener.psubscribe("new*")
        kinds = [listener.get_message(timeout=5)["type"] for _ in range(2)]
        equal(kinds, ["subscribe", "psubscribe"])
        equal(client.publish("news", "hello"), 2)
        heard = [listener.get_message(timeout=5) for _ in range(2)]
        equal(sorted(message["type"] for message in heard), ["message", "pmessage"])
        equal([message["data"] for message in heard], [b"hello"] * 2)
        equal(client.pubsub_numsub("news"), [(b"news", 1)])
        listener.unsubscribe("news")
        listener.punsubscribe("new*")
        equal([listener.get_message(timeout=5)["type"] for _ in range(2)], ["unsubscribe", "punsubscribe"])
    equal(client.publish("news", "nobody"), 0)


@library.case("scan_iter")
def scan_iter(client):
    client.mset({f"scan:{number}": number for number in range(300)})
    equal(set(client.scan_iter("scan:*", count=50)), {b"scan:%d" % number for number in range(300)})
    equal(set(client.scan_iter("scan:1?", count=50)), {b"scan:1%d" % number for number in range(10)})


@library.case("info")
def info(client):
    everything = client.info()
    equal(everything["redis_mode"], "standalone")
    equal(everything["connected_clients"] >= 1, True)
    equal("used_memory" in client.info("memory"), True)
    equal("cmdstat_info" in client.info("commandstats"), True)


@library.case("slowlog_get")
def slowlog(client):
    before = client.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"]
    client.config_set("slowlog-log-slower-than", 0)
    try:
        client.slowlog_reset()
        client.set("slow:key", "value")
        commands = [entry["command"] for entry in client.slowlog_get(20)]
        equal(any(command.startswith(b"SET slow:key") for command in commands), True)
        equal(client.slowlog_len() >= 1, True)
    finally:
        client.config_set("slowlog-log-slower-than", before)


@library.case("dump and restore")
def dump(client):
    client.set("dump:a", "value")
    client.hset("dump:h", mapping={"f": 1, "g": 2})
    client.restore("dump:b", 0, client.dump("dump:a"))
    client.restore("dump:i", 100_000, client.dump("dump:h"))
    equal(client.get("dump:b"), b"value")
    equal(client.hgetall("dump:i"), {b"f": b"1", b"g": b"2"})
    equal(90_000 < client.pttl("dump:i") <= 100_000, True)
    refused_restore = False
    try:
        client.restore("dump:b", 0, client.dump("dump:a"))
    except redis.ResponseError as error:
        refused_restore = str(error).startswith("BUSYKEY")
    equal(refused_restore, True)


@library.case("hashes")
def hashes(client):
    equal(client.hset("hash:a", mapping={"f": 1, "g": "two"}), 2)
    equal(client.hincrby("hash:a", "f", 4), 5)
    equal(client.hmget("hash:a", "f", "none", "g"), [b"5", None, b"two"])
    equal(dict(client.hscan_iter("hash:a")), {b"f": b"5", b"g": b"two"})
    equal(client.hdel("hash:a", "f"), 1)
    equal(client.hgetall("hash:a"), {b"g": b"two"})
    equal(client.type("hash:a"), b"hash")
    equal(float(client.hincrbyfloat("hash:a", "h", 1.5)), 1.5)


@library.case("values of 5,000 bytes in a transaction")
def long_in_transaction(client):
    with client.pipeline() as pipe:
        pipe.set("{long}:a", LONG).set("{long}:b", LONG, ex=100).get("{long}:a").append("{long}:a", b"!")
        equal(pipe.execute(), [True, True, LONG, 5001])
    equal(client.get("{long}:b"), LONG)


@library.case("a value of 5,000 bytes that is watched and read")
def long_watched(client):
    client.set("long:w", LONG)
    with client.pipeline() as pipe:
        pipe.watch("long:w")
        equal(pipe.get("long:w"), LONG)
        pipe.multi()
        pipe.get("long:w").strlen("long:w")
        equal(pipe.execute(), [LONG, 5000])


@library.case("a value of 5,000 bytes in a pipeline without transaction")
def long_plain(client):
    with client.pipeline(transaction=False) as pipe:
        pipe.set("long:p", LONG).get("long:p").strlen("long:p")
        equal(pipe.execute(), [True, LONG, 5000])


@library.case("lists")
def lists(client):
    refused(lambda: client.rpush("list", "a"), "unknown command 'RPUSH'")


if __name__ == "__main__":
    for protocol in (2, 3):
        library.name = f"redis-py {redis.__version__} RESP{protocol}"
        with connect(protocol) as client:
            library.run(client)
            client.flushdb()
