"""cachelib, limits and redlock-py."""

import time
from importlib.metadata import version

import limits
import redis
from cachelib import RedisCache
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter
from redlock import Redlock

from cases import DATABASE, HOST, LONG, PORT, URL, Library, equal, refused

cachelib = Library(f"cachelib {version('cachelib')}")
limiters = Library(f"limits {version('limits')}")
redlock = Library(f"redlock-py {version('redlock-py')}")


def cache(prefix):
    return RedisCache(HOST, PORT, db=DATABASE, key_prefix=prefix)


@cachelib.case("set, get, add, has, inc, dec, delete")
def cachelib_one():
    store = cache("one:")
    equal(store.set("a", {"b": [1, 2]}, timeout=100), True)
    equal(store.get("a"), {"b": [1, 2]})
    equal(store.add("a", 2), False)
    equal(store.add("n", 2), True)
    equal(store.inc("n", 5), 7)
    equal(store.dec("n", 4), 3)
    equal(store.has("n"), True)
    equal(store.delete("n"), True)
    equal(store.has("n"), False)
    equal(store.get("n"), None)
    equal(store.set("short", 1, timeout=1), True)
    time.sleep(1.2)
    equal(store.get("short"), None)


@cachelib.case("get_many, get_dict, set_many, delete_many; keys with a tag")
def cachelib_many():
    store = cache("{many}:")
    equal(store.set_many({"a": 1, "b": "two"}), ["a", "b"])
    equal(store.get_many("a", "none", "b"), [1, None, "two"])
    equal(store.get_dict("a", "b"), {"a": 1, "b": "two"})
    equal(store.delete_many("a", "b"), ["a", "b"])


@cachelib.case("set_many and delete_many of 30 keys without a tag")
def cachelib_untagged():
    store = cache("plain:")
    values = {f"k{number}": number for number in range(30)}
    equal(store.set_many(values), list(values))
    equal(store.get_dict(*values), values)
    equal(store.delete_many(*values), list(values))


@cachelib.case("set_many with 5,000 bytes")
def cachelib_long():
    store = cache("{long}:")
    equal(store.set_many({"a": LONG, "b": 1}), ["a", "b"])
    equal(store.get("a"), LONG)


@cachelib.case("clear")
def cachelib_clear():
    store = cache("clear:")
    store.set("a", 1)
    store.clear()
    equal(store.get("a"), None)


def limiter(strategy):
    return strategy(storage_from_string(URL))


@limiters.case("fixed window")
def fixed_window():
    fixed = limiter(FixedWindowRateLimiter)
    five = limits.parse("5 per hour")
    equal([fixed.hit(five, "fixed") for _ in range(7)], [True] * 5 + [False] * 2)
    equal(fixed.get_window_stats(five, "fixed").remaining, 0)
    equal(fixed.test(five, "other"), True)
    fixed.clear(five, "fixed")
    equal(fixed.hit(five, "fixed"), True)


@limiters.case("sliding window counter")
def sliding_window():
    sliding = limiter(SlidingWindowCounterRateLimiter)
    five = limits.parse("5 per hour")
    equal([sliding.hit(five, "sliding") for _ in range(7)], [True] * 5 + [False] * 2)
    equal(sliding.get_window_stats(five, "sliding").remaining, 0)
    sliding.clear(five, "sliding")
    equal(sliding.hit(five, "sliding"), True)


@limiters.case("moving window, which needs lists")
def moving_window():
    moving = limiter(MovingWindowRateLimiter)
    refused(lambda: moving.hit(limits.parse("5 per hour"), "moving"), "(?i)unknown (redis )?command")


@limiters.case("reset, a script with the command KEYS")
def reset():
    refused(lambda: storage_from_string(URL).reset(), "not allowed from script")


@redlock.case("lock, refused lock, unlock")
def lock():
    here = [{"host": HOST, "port": PORT, "db": DATABASE}]
    mine, other = Redlock(here), Redlock(here, retry_count=2)
    held = mine.lock("redlock", 20_000)
    equal(bool(held), True)
    equal(other.lock("redlock", 20_000), False)
    mine.unlock(held)
    again = other.lock("redlock", 20_000)
    equal(bool(again), True)
    other.unlock(again)


@redlock.case("a lock whose time is over")
def lock_over():
    here = [{"host": HOST, "port": PORT, "db": DATABASE}]
    mine, other = Redlock(here), Redlock(here, retry_count=10, retry_delay=0.2)
    held = mine.lock("redlock:short", 300)
    after = other.lock("redlock:short", 20_000)
    equal(bool(after), True)
    mine.unlock(held)
    equal(Redlock(here, retry_count=1).lock("redlock:short", 1000), False)


if __name__ == "__main__":
    for library in (cachelib, limiters, redlock):
        library.run()
    redis.Redis.from_url(URL).flushdb()
