"""RQ, whose queues are lists and sets: it is told so."""

import redis
import rq

from cases import URL, Library, refused

library = Library(f"RQ {rq.VERSION}")


@library.case("enqueue")
def enqueue(client):
    queue = rq.Queue("work", connection=client)
    refused(lambda: queue.enqueue("os.getpid"), "there are no lists, sets, sorted sets or streams")


if __name__ == "__main__":
    with redis.Redis.from_url(URL) as client:
        library.run(client)
        client.flushdb()
