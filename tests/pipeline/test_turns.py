"""Taking turns, in real processes."""

import fcntl
import multiprocessing
import os
import signal
import time

import pytest

from pipeline import turns
from pipeline.turns import Holder, Voice, holder, turn, work_of

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "locks" / "train-0123"


@pytest.fixture
def said():
    return []


def hold(path, has_it, go_on):
    with turn(path, "train", "train: another run is building it", Voice(print)):
        has_it.set()
        go_on.wait(60)


@pytest.fixture
def held(path):
    """The lock in another process's hands."""
    has_it, go_on = FORK.Event(), FORK.Event()
    process = FORK.Process(target=hold, args=(path, has_it, go_on))
    process.start()
    assert has_it.wait(60)
    yield process, go_on
    if process.is_alive():  # an event waits for ever for the dead to wake
        go_on.set()
    process.join()


def take(path, said, reminded=None):
    voice = Voice(said.append, said.append if reminded is None else reminded.append)
    with turn(path, "train", "train: another run is building it", voice):
        return holder(path)


def test_a_lock_says_who_holds_it_and_nothing_afterwards(path, said):
    inside = take(path, said)
    assert (inside.what, inside.pid) == ("train", os.getpid())
    assert holder(path) is None
    assert said == []


def test_who_waits_is_told_for_whom_and_has_its_turn_when_that_one_ends(path, said, held):
    process, go_on = held

    def release(line):
        said.append(line)
        go_on.set()

    with turn(path, "train", "train: another run is building it", Voice(release)):
        assert holder(path).pid == os.getpid()
    [line] = said
    assert line.startswith("train: another run is building it (process ")
    assert f"(process {process.pid} on " in line
    assert ", since " in line
    assert line.endswith("; waiting for that")


def test_a_killed_holder_frees_it(path, said, held):
    process, _ = held
    assert take_after(path, said, lambda: os.kill(process.pid, signal.SIGKILL)).pid == os.getpid()
    assert len(said) == 1


def take_after(path, said, act):
    """Take a turn; `act` once the wait has begun."""

    def say(line):
        said.append(line)
        act()

    with turn(path, "train", "train: busy", Voice(say)):
        return holder(path)


@pytest.fixture
def unsigned(path):
    """The lock in another's hands who has not said so yet."""
    path.parent.mkdir(parents=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def test_who_has_just_taken_it_is_named_all_the_same(path, said, unsigned, monkeypatch):
    looked = []

    def look(seconds):
        looked.append(seconds)
        if len(looked) == 3:
            turns._sign(unsigned, Holder("train", 7, "node", turns._now()))

    monkeypatch.setattr(turns.time, "sleep", look)
    take_after(path, said, unsigned.close)
    assert len(looked) == 3
    assert [line.partition(", since")[0] for line in said] == ["train: busy (process 7 on node"]


def test_who_never_says_is_waited_for_without_a_name(path, said, unsigned, monkeypatch):
    monkeypatch.setattr(turns, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(turns, "SIGNED_WITHIN_S", 0.05)
    take_after(path, said, unsigned.close)
    assert said == ["train: busy; waiting for that"]


def test_a_wait_is_said_once_and_called_to_mind_now_and_then(path, said, held, monkeypatch):
    _, go_on = held
    reminded = []

    def remind(line):
        reminded.append(line)
        if len(reminded) == 3:
            go_on.set()

    monkeypatch.setattr(turns, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(turns, "REMIND_EVERY_S", 0.03)
    with turn(path, "train", "train: busy", Voice(said.append, remind)):
        pass
    assert len(said) == 1
    assert len(reminded) >= 3
    assert all("waiting for 0 s" in line for line in reminded)


def test_a_wait_can_be_interrupted(path, said, held):
    def interrupt(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_after(path, said, lambda: interrupt(""))
    assert holder(path).pid == held[0].pid


def test_what_a_holder_is_at_is_the_lock_that_it_signed_last(tmp_path):
    run = Holder("a run", 7, "node", "2026-01-01T10:00:00.000+00:00")
    at = {"run": run, "clean": run._replace(what="clean", since="2026-01-01T10:01:00.000+00:00"),
          "train": run._replace(what="train", since="2026-01-01T10:02:00.000+00:00"),
          "other": run._replace(what="vocab", pid=8, since="2026-01-01T10:03:00.000+00:00")}  # fmt: skip
    for name, whose in at.items():
        with (tmp_path / name).open("a") as file:
            turns._sign(file, whose)
    (tmp_path / "empty").touch()
    (tmp_path / "torn").write_text('{"what"')
    assert work_of(run, tmp_path) == "train"
    assert work_of(run._replace(host="elsewhere"), tmp_path) is None


def test_of_many_processes_one_at_a_time_is_inside(path, tmp_path):
    inside = tmp_path / "inside"
    processes = [FORK.Process(target=enter, args=(path, inside)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 6


def enter(path, inside):
    turns.LOOK_EVERY_S = 0.01
    with turn(path, "train", "busy", Voice(turns.unheard)):
        inside.mkdir()  # raises if another one is there
        time.sleep(0.02)
        inside.rmdir()
