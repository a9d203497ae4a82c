"""Processes are found by their mark and by their parents, and ended with all they started."""

import os
import subprocess
import sys
import time
from uuid import uuid4

import psutil
import pytest

from infra.stack import processes

FORKS = """
import os, subprocess, sys, time
code = "import time; time.sleep(600)"
environment = {k: v for k, v in os.environ.items() if k != "TRADUKO_STACK"}
subprocess.Popen([sys.executable, "-c", code], env=environment)
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def mark():
    mark = f"test-{uuid4().hex}"
    yield mark
    assert not processes.end(mark, (), 0.1)


@pytest.fixture
def start(tmp_path, mark):
    def start(code, name="one"):
        log = tmp_path / f"{name}.log"
        command = [sys.executable, "-c", code]
        pid = processes.start(command, os.environ, f"{mark}/{name}", log, tmp_path)
        until = time.monotonic() + 60
        while "ready" not in log.read_text() and time.monotonic() < until:
            time.sleep(0.05)
        return pid

    return start


def test_what_is_started_outlives_its_starters_terminal(start):
    pid = start("print('ready', flush=True); import time; time.sleep(600)")
    assert os.getsid(pid) == pid != os.getsid(0)


def test_a_family_holds_children_without_the_mark_and_in_other_sessions(start, mark):
    pid = start(FORKS)
    found = processes.family(mark)
    assert pid in {process.pid for process in found}
    assert len(found) == 3


def test_orphans_are_still_of_the_family(start, mark):
    pid = start(FORKS)
    before = processes.family(mark)
    psutil.Process(pid).kill()
    until = time.monotonic() + 30
    while processes.is_running(pid, f"{mark}/one") and time.monotonic() < until:
        time.sleep(0.05)
    assert processes.family(mark) < before  # the one that carries the mark
    for process in before:
        process.kill()


def test_a_pid_that_another_process_has_now_is_not_ours(mark):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        assert not processes.is_running(other.pid, f"{mark}/one")
        other.kill()


def test_a_pid_of_nobody_is_not_running(start, mark):
    pid = start("print('ready')")
    until = time.monotonic() + 30
    while processes.is_running(pid, f"{mark}/one") and time.monotonic() < until:
        time.sleep(0.05)
    assert not processes.is_running(pid, f"{mark}/one")


def test_ending_leaves_nothing(start, mark):
    pid = start(FORKS)
    before = processes.family(mark)
    assert processes.end(mark, [pid], 5.0) == set()
    assert all(map(processes.is_over, before))


def test_one_that_ignores_the_request_is_killed(start, mark):
    pid = start(STUBBORN)
    assert processes.end(mark, [pid], 0.2) == set()
    assert not processes.is_running(pid, f"{mark}/one")


def test_ending_one_service_spares_the_other(start, mark):
    start("print('ready', flush=True); import time; time.sleep(600)")
    two = start("print('ready', flush=True); import time; time.sleep(600)", "two")
    processes.end(f"{mark}/one", (), 5.0)
    assert processes.is_running(two, f"{mark}/two")
    assert processes.marks(mark) == {f"{mark}/two"}


def test_this_process_is_never_of_a_family(monkeypatch, mark):
    monkeypatch.setenv(processes.MARK, mark)
    child = subprocess.run(
        [sys.executable, "-c", f"from infra.stack.processes import family; print(family({mark!r}))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert child.stdout.strip() == "set()"


def test_memory_is_that_of_the_whole_family(start, mark):
    pid = start(FORKS)
    alone = psutil.Process(pid).memory_info().rss
    assert processes.memory_bytes(mark) > alone
