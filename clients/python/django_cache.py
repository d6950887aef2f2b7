"""Django's own cache and cached sessions, and django-redis."""

from importlib.metadata import version

import django
import redis
from django.conf import settings

from cases import LONG, URL, Library, equal, needs_one_partition


def cache_of(backend, prefix, **options):
    return {"BACKEND": backend, "LOCATION": URL, "KEY_PREFIX": prefix, **options}


OWN = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"
settings.configure(
    CACHES={
        "default": cache_of(OWN, "{cache}"),
        "untagged": cache_of(OWN, "plain"),
        "redis": cache_of(DJANGO_REDIS, "{other}"),
        "redis-untagged": cache_of(DJANGO_REDIS, "bare"),
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SECRET_KEY="of no use to anybody",
    USE_TZ=True,
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import caches  # noqa: E402

own = Library(f"Django {version('django')}")
other = Library(f"django-redis {version('django-redis')}")


@own.case("set, get, add, incr, touch, delete")
def one():
    cache = caches["default"]
    cache.set("a", {"b": 1}, 100)
    equal(cache.get("a"), {"b": 1})
    equal(cache.add("a", 2), False)
    equal(cache.add("n", 2), True)
    equal(cache.incr("n", 3), 5)
    equal(cache.decr("n"), 4)
    equal(cache.touch("n", 100), True)
    equal(cache.touch("none"), False)
    equal(cache.has_key("n"), True)
    equal(cache.delete("n"), True)
    equal(cache.get("n", "gone"), "gone")
    equal(cache.get_or_set("o", lambda: 7), 7)


@own.case("set_many, get_many, delete_many; keys with a tag")
def many():
    cache = caches["default"]
    equal(cache.set_many({"x": 1, "y": "two"}, 100), [])
    equal(cache.get_many(["x", "none", "y"]), {"x": 1, "y": "two"})
    cache.delete_many(["x", "y"])
    equal(cache.get_many(["x", "y"]), {})


@own.case("set_many; keys without a tag")
def many_untagged():
    cache = caches["untagged"]
    values = {f"k{number}": number for number in range(30)}
    equal(needs_one_partition(lambda: cache.set_many(values, 100)), [])
    equal(cache.get_many(values), values)


@own.case("set_many with 5,000 bytes")
def many_long():
    cache = caches["default"]
    equal(cache.set_many({"x": LONG, "y": 1}, 100), [])
    equal(cache.get("x"), LONG)


@own.case("cached sessions")
def sessions():
    session = SessionStore()
    session["user"] = 7
    session.create()
    session["text"] = LONG.decode()
    session.save()
    again = SessionStore(session.session_key)
    equal((again["user"], again["text"]), (7, LONG.decode()))
    again.cycle_key()
    equal(SessionStore(session.session_key).exists(session.session_key), False)
    equal(SessionStore(again.session_key)["user"], 7)
    again.flush()
    equal(SessionStore(again.session_key).get("user"), None)


@own.case("clear")
def clear():
    cache = caches["default"]
    cache.set("a", 1)
    cache.clear()
    equal(cache.get("a"), None)


@other.case("set, get, ttl, incr, nx")
def redis_one():
    cache = caches["redis"]
    equal(cache.set("a", {"b": 1}, 100), True)
    equal(cache.get("a"), {"b": 1})
    equal(0 < cache.ttl("a") <= 100, True)
    equal(cache.set("a", 2, nx=True), False)
    cache.set("n", 1)
    equal(cache.incr("n"), 2)
    equal(cache.persist("a"), True)
    equal(cache.expire("a", 50), True)


@other.case("set_many, keys, delete_pattern; keys with a tag")
def redis_many():
    cache = caches["redis"]
    cache.set_many({f"many:{number}": number for number in range(20)}, 100)
    equal(len(cache.keys("many:*")), 20)
    equal(cache.get_many(["many:1", "many:2"]), {"many:1": 1, "many:2": 2})
    equal(cache.delete_pattern("many:1*"), 11)
    equal(len(list(cache.iter_keys("many:*"))), 9)


@other.case("set_many; keys without a tag")
def redis_untagged():
    cache = caches["redis-untagged"]
    values = {f"k{number}": number for number in range(30)}
    needs_one_partition(lambda: cache.set_many(values, 100))
    equal(cache.get_many(values), values)


@other.case("set_many with 5,000 bytes")
def redis_long():
    cache = caches["redis"]
    cache.set_many({"x": LONG, "y": 1}, 100)
    equal(cache.get("x"), LONG)


@other.case("lock")
def redis_lock():
    cache = caches["redis"]
    with cache.lock("lock", timeout=20):
        equal(cache.lock("lock", timeout=20).acquire(blocking=False), False)
    equal(cache.lock("lock", timeout=20).acquire(blocking=False), True)


@other.case("delete_many, clear")
def redis_clear():
    cache = caches["redis"]
    cache.set("a", 1)
    equal(cache.delete_many(["a", "none"]), 1)
    cache.set("a", 1)
    cache.clear()
    equal(cache.get("a"), None)


if __name__ == "__main__":
    own.run()
    other.run()
    redis.Redis.from_url(URL).flushdb()
