"""Selects among redis-py's own tests, as a plugin of pytest.

* A test is skipped as soon as it sends a command that docs/COMMANDS.md does not list under "What is there".
* A test of which `own_tests.txt` says why it cannot pass is expected to fail, and fails if it passes.
* A test that takes longer than 30 s has failed.

Writes a line for each test that failed, and for each that was expected to, and one for all that passed, to descriptor 3.
"""

import os
import re
import signal
from pathlib import Path

import pytest
import redis
from redis.connection import Connection

HERE = Path(__file__).resolve().parent
TEST_SECONDS_MAX = 30


def commands():
    """Commands that are there, and subcommands that are not, as docs/COMMANDS.md says."""
    text = (HERE / "../../docs/COMMANDS.md").resolve().read_text()
    there = text.split("## What is there")[1].split("\n## ")[0]
    absent = text.split("## What is not there")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in there.splitlines() if line.startswith("| ")]
    names = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    pairs = set(re.findall(r"`([A-Z]+ [A-Z]+)`", absent))
    return names, pairs


def differences():
    """Tests that cannot pass, with the reason."""
    lines = (HERE / "own_tests.txt").read_text().splitlines()
    pairs = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    return dict(pairs)


THERE, ABSENT = commands()
DIFFERENCES = differences()
NAMES = {name.split("::")[-1] for name in DIFFERENCES}
plain_send_command = Connection.send_command
plain_pack_commands = Connection.pack_commands


def skip_if_absent(args):
    words = " ".join(str(arg) for arg in args[:2] if isinstance(arg, str)).upper().split()
    if not words or not words[0].isalpha() and "_" not in words[0]:
        return
    if words[0] not in THERE or " ".join(words[:2]) in ABSENT:
        pytest.skip(f"{' '.join(words[:2]) if words[0] in THERE else words[0]} is not there")


def send_command(self, *args, **kwargs):
    skip_if_absent(args)
    return plain_send_command(self, *args, **kwargs)


def pack_commands(self, commands):
    commands = list(commands)
    for args in commands:
        skip_if_absent(args)
    return plain_pack_commands(self, commands)


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.nodeid.split("/")[-1]
        reason = DIFFERENCES.get(name.split("[")[0])
        if reason:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def too_long(_signal, _frame):
    pytest.fail(f"takes longer than {TEST_SECONDS_MAX} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(TEST_SECONDS_MAX)
    try:
        return (yield)
    finally:
        signal.alarm(0)


class Outcomes:
    """Says how tests ended, as `cases.py` does of cases."""

    def __init__(self, protocol):
        self.library = f"redis-py {redis.__version__} tests RESP{protocol}"
        self.passed = 0

    def tell(self, outcome, case, detail=""):
        line = "\t".join((outcome, self.library, case, " ".join(detail.split())))
        os.write(3, f"{line}\n".encode())

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.split("::")[-1]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.tell("failed", name, crash.message if crash else str(report.longrepr))
        elif report.skipped and hasattr(report, "wasxfail") and name.split("[")[0] in NAMES:
            self.tell("refused", name, report.wasxfail)
        elif report.passed and report.when == "call":
            self.passed += 1

    def pytest_sessionfinish(self):
        self.tell("ok" if self.passed else "failed", f"{self.passed} tests that use what is there")


def pytest_configure(config):
    config.pluginmanager.register(Outcomes(config.getoption("--protocol")))


@pytest.fixture(autouse=True)
def only_what_is_there(monkeypatch):
    monkeypatch.setattr(Connection, "send_command", send_command)
    monkeypatch.setattr(Connection, "pack_commands", pack_commands)
