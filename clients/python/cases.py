"""What all cases in Python share: where the gateway is, and one line for each outcome.

A case is a function. It returns when all was as it should be, raises `Refused` when it was refused as docs/COMMANDS.md
says, and anything else when it failed. `clients/run --help` has the format of the lines.
"""

import os
import re
import traceback
from concurrent.futures import ThreadPoolExecutor

HOST = os.environ["CLIENTS_HOST"]
PORT = int(os.environ["CLIENTS_PORT"])
DATABASE = int(os.environ["CLIENTS_DATABASE"])
# Whether all keys of the database are of one partition.
TOGETHER = os.environ["CLIENTS_TOGETHER"] == "1"
URL = f"redis://{HOST}:{PORT}/{DATABASE}"
# As long as no datagram takes.
LONG = b"five " * 1000


class Refused(Exception):
    """The gateway has refused what docs/COMMANDS.md says that it refuses."""


class Library:
    def __init__(self, name):
        self.name = name
        self.cases = []

    def case(self, name):
        def add(function):
            self.cases.append((name, function))
            return function

        return add

    def run(self, *arguments):
        for name, function in self.cases:
            try:
                function(*arguments)
                outcome, detail = "ok", ""
            except Refused as error:
                outcome, detail = "refused", str(error)
            except Exception as error:
                outcome, detail = "failed", f"{type(error).__name__}: {error} ({where(error)})"
            print(outcome, self.name, name, " ".join(detail.split()), sep="\t", flush=True)


def where(error):
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else "?"


def equal(is_so, should_be):
    if is_so != should_be:
        raise AssertionError(f"{shorten(is_so)}, should be {shorten(should_be)}")


def shorten(value):
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def refused(call, words):
    """Calls what is to be refused with an error that has these words."""
    try:
        value = call()
    except Exception as error:
        if re.search(words, str(error)):
            raise Refused(str(error)) from None
        raise
    raise AssertionError(f"not refused: {shorten(value)}")


def needs_one_partition(call):
    """Calls what is refused unless all keys are of one partition."""
    return call() if TOGETHER else refused(call, "CROSSSLOT|have to be of one partition")


def in_threads(count, function):
    """Runs a function in several threads, and fails if it fails in one of them."""
    with ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(function) for _ in range(count)]:
            future.result(timeout=60)
