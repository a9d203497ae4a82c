"""Downloads beside each other: four at once, all told, and stopped together."""

import threading
import time
from contextlib import contextmanager

import pytest

from flows.downloads import AT_ONCE, fetch_all
from pipeline.errors import CorpusError
from pipeline.fetching.fetch import Fetched
from pipeline.sources import FileSource


class Screen:
    """Remembers what is shown."""

    def __init__(self):
        self.said, self.bars, self.most_bars, self.told = [], set(), 0, []

    def say(self, line):
        self.said.append(line)

    @contextmanager
    def beside(self, name):
        self.bars.add(name)
        self.most_bars = max(self.most_bars, len(self.bars))
        try:
            yield lambda done, total, unit, note="": self.told.append((name, done, total, unit))
        finally:
            self.bars.discard(name)


class Network:
    """Files that come when the test lets them; `stopped` are those that were told to stop."""

    def __init__(self):
        self.may_come, self.stopped = threading.Event(), []

    def remote(self, files):
        return [file for file in files if file.url]

    @contextmanager
    def open(self, file, on_progress):
        name = file.url.rpartition("/")[2]
        if name == "wrong":
            raise CorpusError("it is wrong")
        try:
            on_progress(0, 10)
            while name != "quick" and not self.may_come.wait(0.01):
                if name != "silent":
                    on_progress(5, 10)
        except Exception:
            self.stopped.append(name)
            raise
        yield Fetched(None, "0" * 64, 1234, file.url)


@pytest.fixture
def screen():
    return Screen()


@pytest.fixture
def network():
    network = Network()
    yield network
    network.may_come.set()


def at(*names):
    return [FileSource(url=f"http://h/{name}") for name in names]


def wait_until(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it does not come to that")


def test_all_come_a_few_at_once_each_with_a_bar_and_a_line(screen, network):
    names = [f"file{number}" for number in range(AT_ONCE + 3)]
    thread = threading.Thread(target=fetch_all, args=(network, at(*names), screen))
    thread.start()
    wait_until(lambda: len(screen.bars) == AT_ONCE)
    network.may_come.set()
    thread.join(5)
    assert screen.most_bars == AT_ONCE
    assert screen.bars == set()
    assert sorted(screen.said) == [f"http://h/{name}: 1,234 bytes" for name in names]
    assert (names[0], 0, 10, "bytes") in screen.told


def test_nothing_to_fetch_starts_nothing(screen, network):
    fetch_all(network, [FileSource(path="a")], screen)
    assert (screen.said, screen.most_bars) == ([], 0)


def test_an_error_is_raised_as_it_is_and_the_others_stop(screen, network):
    with pytest.raises(CorpusError, match=r"^it is wrong$"):
        fetch_all(network, at("one", "two", "wrong", "three", "four"), screen)
    wait_until(lambda: not screen.bars)
    assert {"one", "two"} <= set(network.stopped) <= {"one", "two", "three"}


def test_an_interrupt_ends_at_once_though_a_server_is_silent(screen, network):
    def interrupt(line):
        raise KeyboardInterrupt

    screen.say = interrupt
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        fetch_all(network, at("silent", "slow", "quick"), screen)
    assert time.perf_counter() - started < 4
    assert network.stopped == ["slow"]


def test_no_secret_is_shown(screen, network):
    network.may_come.set()
    fetch_all(network, at("one?token=hunter2"), screen)
    assert screen.said == ["http://h/one: 1,234 bytes"]
    assert "hunter2" not in str(screen.told)
