"""Stacks of small real services: up, up again, mended, down, and nothing left."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from infra.stack import processes, state
from infra.stack.ports import LOOPBACK, free_port, is_free
from infra.stack.services import Service
from infra.stack.stack import Stack, tail
from pipeline.errors import TradukoError

FAKE = str(Path(__file__).parents[1] / "fake_service.py")
NAMES = {"one": ("one",), "two": ("two",)}
TIMEOUT_S = 60


class Fake:
    """Two services of one stack, the second of which needs the first."""

    def __init__(self, folder):
        self.said = []
        self.stack = Stack(folder, self.said.append)
        self.defaults = {"one": free_port(()), "two": 0}
        self.defaults["two"] = free_port(self.defaults.values())
        self.ways = {"one": (), "two": ()}

    def services(self, ports):
        return [self.service("one", ports), self.service("two", ports, needs=("one",))]

    def service(self, name, ports, needs=()):
        url = f"http://{LOOPBACK}:{ports[name]}"
        return Service(
            name,
            (sys.executable, FAKE, str(ports[name]), *self.ways[name]),
            dict(os.environ),
            url,
            (name,),
            lambda: httpx.get(url, timeout=2, trust_env=False).raise_for_status(),
            needs,
        )

    def up(self, given=None, *, any_port=False, timeout_s=TIMEOUT_S, then=lambda: None):
        with self.stack.alone():
            memory = self.stack.prepare(
                NAMES, given or {}, any_port=any_port, defaults=self.defaults
            )
            with self.stack.up(self.services(memory.ports), timeout_s) as started:
                then()
        return list(started)

    def down(self):
        with self.stack.alone():
            return self.stack.down(["two", "one"])

    def status(self):
        memory = self.stack.memory
        found = self.stack.status(self.services({**self.defaults, **memory.ports}))
        return {each.service: each for each in found}

    def statuses(self):
        return {name: each.status for name, each in self.status().items()}

    def pid(self, name):
        return self.stack.memory.services[name].pid

    @property
    def family(self):
        return processes.family(self.stack.memory.mark)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.setattr("infra.stack.stack.POLL_S", 0.05)
    monkeypatch.setattr("infra.stack.processes.POLL_S", 0.05)
    monkeypatch.setattr("infra.stack.processes.GRACE_S", 0.1)
    (tmp_path / "stack").mkdir()
    fake = Fake(tmp_path / "stack")
    mark = state.fresh(fake.stack.folder).mark
    yield fake
    assert not processes.end(mark, (), 0.5)
    scratch = fake.stack.memory.scratch
    if scratch:
        Path(scratch).rmdir()


BOTH = {"one": "running", "two": "running"}


def kill(pid, mark):
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 30
    while processes.is_running(pid, mark) and time.monotonic() < until:
        time.sleep(0.05)


def test_up_starts_all_and_down_leaves_nothing(fake):
    assert fake.up() == ["one", "two"]
    assert fake.statuses() == BOTH
    family, ports = fake.family, fake.stack.memory.ports
    scratch = Path(fake.stack.memory.scratch)
    assert len(family) == 4  # two services, a child of each
    assert scratch.is_dir()
    assert fake.down() == ["two", "one"]
    assert all(map(processes.is_over, family))
    assert all(is_free(port) for port in ports.values())
    assert fake.statuses() == {"one": "stopped", "two": "stopped"}
    assert not scratch.exists()


def test_a_second_up_is_harmless(fake):
    fake.up()
    before = fake.stack.memory
    assert fake.up() == []
    assert fake.stack.memory == before


def test_down_is_harmless_when_nothing_runs(fake):
    assert fake.down() == []
    assert fake.down() == []


def test_status_tells_pid_address_start_and_memory(fake):
    fake.up()
    one = fake.status()["one"]
    assert one.pid == fake.pid("one")
    assert one.address == f"http://127.0.0.1:{fake.defaults['one']}"
    assert one.started_at.endswith("+00:00")
    assert one.memory_bytes > psutil.Process(one.pid).memory_info().rss / 2


def test_a_dead_service_is_told_and_started_again_alone(fake):
    fake.up()
    two = fake.pid("two")
    kill(fake.pid("one"), f"{fake.stack.memory.mark}/one")
    assert fake.statuses() == {"one": "dead", "two": "running"}
    assert fake.up() == ["one"]
    assert fake.pid("two") == two
    assert fake.statuses() == BOTH
    assert "one had died; starting it again." in fake.said
    assert len(fake.family) == 4  # the orphan of the dead one is gone


def test_an_unhealthy_service_is_told(fake):
    fake.up()
    (fake.stack.folder / "sick").touch()
    assert fake.statuses() == {"one": "unhealthy", "two": "unhealthy"}
    assert "500" in fake.status()["one"].detail
    (fake.stack.folder / "sick").unlink()
    assert fake.statuses() == BOTH


def test_a_service_that_hangs_is_started_again(fake, monkeypatch):
    monkeypatch.setattr("infra.stack.stack.PATIENCE_S", 0.5)
    fake.up()
    hung = fake.pid("one")
    os.kill(hung, signal.SIGSTOP)
    assert fake.up() == ["one"]
    assert fake.pid("one") != hung
    assert fake.statuses() == BOTH


def test_a_power_cut_is_mended(fake):
    """The file says that all runs; nothing does, and one pid is another process's now."""
    fake.up()
    memory = fake.stack.memory
    scratch = Path(memory.scratch)
    processes.end(memory.mark, (), 0.5)
    ours = state.Started(pid=os.getpid(), started_at="2026-01-01T00:00:00+00:00")
    state.write(
        fake.stack.folder,
        memory.model_copy(update={"services": {**memory.services, "one": ours}}),
    )
    assert fake.statuses() == {"one": "dead", "two": "dead"}
    assert fake.up() == ["one", "two"]
    assert fake.statuses() == BOTH
    assert not scratch.exists()


def test_a_lost_state_file_loses_no_process(fake):
    fake.up()
    family = fake.family
    scratch = Path(fake.stack.memory.scratch)
    state.forget(fake.stack.folder)
    assert fake.down() == ["two", "one"]
    assert all(map(processes.is_over, family))
    scratch.rmdir()


def test_a_service_that_ends_shows_its_last_words_and_stops_the_others(fake):
    fake.ways["two"] = ("fail",)
    with pytest.raises(TradukoError, match=r"two has ended.*\n.*\nthe database is missing"):
        fake.up()
    assert not fake.family
    assert fake.statuses() == {"one": "stopped", "two": "stopped"}


def test_a_service_that_does_not_answer_is_given_up(fake):
    fake.ways["two"] = ("deaf",)
    with pytest.raises(TradukoError, match="two does not answer in time"):
        fake.up(timeout_s=5)
    assert not fake.family


def test_what_ran_before_a_failed_up_still_runs(fake):
    fake.up()
    kill(fake.pid("two"), f"{fake.stack.memory.mark}/two")
    fake.ways["two"] = ("fail",)
    with pytest.raises(TradukoError, match="two has ended"):
        fake.up()
    assert fake.statuses() == {"one": "running", "two": "stopped"}


def test_a_failure_after_the_start_stops_what_was_started(fake):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake.up(then=interrupted)
    assert not fake.family


def test_a_service_that_will_not_end_is_killed_with_its_child(fake, monkeypatch):
    monkeypatch.setattr("infra.stack.stack.PATIENCE_S", 0.5)
    fake.ways["one"] = ("stubborn",)
    fake.up()
    family = fake.family
    fake.down()
    assert all(map(processes.is_over, family))


def test_a_taken_port_stops_up_before_anything_starts(fake):
    with socket.socket() as listener:
        listener.bind((LOOPBACK, fake.defaults["one"]))
        listener.listen()
        with pytest.raises(TradukoError, match=f"pid {os.getpid()}"):
            fake.up()
        assert not fake.family
        fake.up(any_port=True)
    assert fake.stack.memory.ports["one"] != fake.defaults["one"]


def test_a_running_service_does_not_move(fake):
    fake.up()
    with pytest.raises(TradukoError, match=r"runs on port .* already.*`traduko down` first"):
        fake.up({"one": free_port(())})


def test_each_start_has_a_log_of_its_own(fake):
    fake.up()
    fake.down()
    fake.up()
    log = fake.stack.log("one")
    assert tail(log, 5) == [f"listening on {fake.defaults['one']}"]
    assert log.with_suffix(".log.1").read_text() == log.read_text()


def test_the_tail_of_a_file(tmp_path):
    path = tmp_path / "log"
    assert tail(path, 3) == []
    path.write_text("".join(f"line {number}\n" for number in range(5000)))
    assert tail(path, 2) == ["line 4998", "line 4999"]
    assert tail(path, 0) == []
