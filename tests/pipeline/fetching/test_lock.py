"""What an address gave is written down once, and stays."""

import json
import re
import threading
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.fetching.lock import LOCK_FILE, Lock, Pin

ONE, TWO = Pin("1" * 64, 10), Pin("2" * 64, 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / LOCK_FILE


def silent(line):
    pytest.fail(f"says {line}")


def test_pins_are_kept_one_line_a_file_in_order(path):
    assert Lock(path, silent).pins() == {}
    Lock(path, silent).add({"http://b/ü": TWO, "http://a/": ONE})
    assert Lock(path, silent).pins() == {"http://a/": ONE, "http://b/ü": TWO}
    assert path.read_text("utf-8") == (
        '{\n "files": {\n'
        f'  "http://a/": {{"bytes": 10, "sha256": "{"1" * 64}"}},\n'
        f'  "http://b/ü": {{"bytes": 0, "sha256": "{"2" * 64}"}}\n'
        ' },\n "version": 1\n}\n'
    )
    content = json.loads(path.read_text("utf-8"))
    assert content["version"] == 1
    assert [file.name for file in path.parent.iterdir()] == [LOCK_FILE]


def test_a_pin_stays_whatever_comes_later(path):
    first, second = Lock(path, silent), Lock(path, silent)
    first.add({"http://a/": ONE})
    second.add({"http://a/": TWO, "http://b/": TWO})
    assert Lock(path, silent).pins() == {"http://a/": ONE, "http://b/": TWO}
    before = path.stat().st_mtime_ns
    first.add({"http://a/": TWO})
    assert path.stat().st_mtime_ns == before, "nothing new, nothing written"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_any_line_can_be_removed(path, place):
    names = ["http://a/", "http://b/", "http://c/"]
    Lock(path, silent).add(dict.fromkeys(names, ONE))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if names[place] not in line))
    assert list(Lock(path, silent).pins()) == [name for name in names if name != names[place]]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "it is not: Invalid JSON"),
        ("<<<<<<< HEAD\n{}", "it is not: Invalid JSON"),
        ('{"files": {}, "version": 2}', "version is not: Input should be 1"),
        ('{"files": {"http://a/": {"bytes": 1}}, "version": 1}', "files.http://a/.sha256 is not"),
        ('{"files": {"http://a/": {"bytes": 1, "sha256": "x"}}, "version": 1}', "sha256 is not"),
    ],
)
def test_a_lock_that_cannot_be_read_is_named(path, text, what):
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(what)) as error:
        Lock(path, silent)
    assert str(error.value).startswith(f"{path} must be JSON like")


def test_a_folder_in_its_place_is_named(path):
    path.mkdir()
    with pytest.raises(ConfigError, match=re.escape(f"{path} cannot be read")):
        Lock(path, silent)


def test_a_folder_that_takes_no_files_is_said_once_and_stops_nothing():
    said = []
    lock = Lock(Path("/proc") / LOCK_FILE, said.append)
    lock.add({"http://a/": ONE})
    lock.add({"http://b/": ONE})
    assert len(said) == 1
    assert re.match(r"/proc/traduko.lock cannot be written \(.*\): what addresses", said[0])
    assert lock.pins() == {"http://a/": ONE, "http://b/": ONE}


def test_writers_at_once_lose_nothing(path):
    names = [f"http://{number}/" for number in range(20)]
    locks = [Lock(path, silent) for _ in names]
    threads = [
        threading.Thread(target=lock.add, args=({name: ONE},))
        for lock, name in zip(locks, names, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Lock(path, silent).pins()) == set(names)
