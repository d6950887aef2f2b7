"""Celery with the gateway as its result store: a worker, who asks it, and a third process that waits for results."""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version

import redis

from cases import LONG, URL, Library, equal

library = Library(f"Celery {version('celery')}")
WAIT_SECONDS = 20


def waiting_process(task):
    """A process of its own that waits for a task's result."""
    source = f"""
from celery_app import app
print("waits", flush=True)
print(app.AsyncResult(input()).get(timeout={WAIT_SECONDS}))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    equal(process.stdout.readline(), "waits\n")
    process.stdin.write(f"{task}\n")
    process.stdin.flush()
    return process


@library.case("result of a task")
def result(tasks):
    equal(tasks.add.delay(2, 3).get(timeout=WAIT_SECONDS), 5)


@library.case("results of several tasks, as a group")
def group(tasks):
    from celery import group

    equal(group(tasks.add.s(n, n) for n in range(10))().get(timeout=WAIT_SECONDS), [2 * n for n in range(10)])


@library.case("an error as a result")
def error(tasks):
    try:
        tasks.fail.delay().get(timeout=WAIT_SECONDS)
    except ValueError as is_so:
        equal(str(is_so), "as it should")
        return
    raise AssertionError("no error")


@library.case("another process waits for the result")
def another(tasks):
    task = tasks.add.signature((20, 22), countdown=1).freeze()
    process = waiting_process(task.id)
    tasks.add.apply_async((20, 22), task_id=task.id, countdown=1)
    out, errors = process.communicate(timeout=WAIT_SECONDS + 10)
    if process.returncode:
        raise AssertionError(errors[-300:])
    equal(out, "42\n")


@library.case("forget")
def forget(tasks):
    task = tasks.add.delay(1, 1)
    task.get(timeout=WAIT_SECONDS)
    task.forget()
    equal(tasks.app.AsyncResult(task.id).state, "PENDING")


@library.case("a result of 5,000 bytes")
def long_result(tasks):
    equal(tasks.text.delay(len(LONG)).get(timeout=WAIT_SECONDS), "x" * len(LONG))


def main():
    with tempfile.TemporaryDirectory(prefix="nicekv-clients-") as directory:
        os.environ["CLIENTS_QUEUE"] = directory
        import celery_app

        log = os.path.join(directory, "worker.log")
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--pool", "threads", "-c", "2",
             "-l", "warning", "--logfile", log, "--without-gossip", "--without-mingle", "--without-heartbeat"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            library.run(celery_app)
        finally:
            worker.terminate()
            worker.wait(timeout=20)


if __name__ == "__main__":
    main()
    redis.Redis.from_url(URL).flushdb()
