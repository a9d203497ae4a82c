"""What is at an address is fetched once, for all that want it, and is never trusted blindly."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import CorpusError
from pipeline.fetching.address import recorded
from pipeline.fetching.lock import LOCK_FILE, Lock, Pin
from pipeline.sources import FileSource
from tests.servers import Bodies, serving

BODY = b"The clock strikes seven.\n" * 10_000
OTHER = BODY.replace(b"seven", b"eight")
SHA256, MD5 = hashlib.sha256(BODY).hexdigest(), hashlib.md5(BODY).hexdigest()


@pytest.fixture
def server():
    with serving(Bodies, bodies={"train.en": BODY, "train.en2": BODY}) as server:
        yield server


@pytest.fixture
def address(server):
    return f"{server.site}/train.en"


@pytest.fixture
def files(make_files):
    return make_files()


def at(address, **more):
    return FileSource(url=address, **more)


def read(files, file):
    with files.open(file) as fetched:
        assert fetched.path.stat().st_size == fetched.size_bytes
        return fetched, fetched.path.read_bytes()


def test_an_address_is_fetched_once(files, server, address):
    for _ in range(3):
        fetched, body = read(files, at(address))
        assert (body, fetched.sha256, fetched.address) == (BODY, SHA256, address)
    assert read(files, at(address, sha256=SHA256))[1] == BODY
    assert len(server.asked) == 1


def test_addresses_that_differ_only_in_their_query_are_two(files, server, address):
    read(files, at(f"{address}?lang=en"))
    server.bodies["train.en"] = OTHER
    assert read(files, at(f"{address}?lang=de"))[1] == OTHER
    assert read(files, at(f"{address}?lang=en"))[1] == BODY


def test_a_file_is_placed_without_a_second_copy(files, server, address, tmp_path):
    fetched = files.place(at(address), tmp_path / "src")
    assert (fetched.path, (tmp_path / "src").read_bytes()) == (tmp_path / "src", BODY)
    with files.open(at(address)) as kept:
        assert kept.path.samefile(tmp_path / "src")
    files.clear([at(address)])
    assert (tmp_path / "src").read_bytes() == BODY


def test_a_file_is_copied_where_links_cannot_be(files, address, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    assert files.place(at(address), tmp_path / "src").path.read_bytes() == BODY
    with files.open(at(address)) as kept:
        assert not kept.path.samefile(tmp_path / "src")


@pytest.mark.parametrize("how", ["path", "file", "mirror"])
def test_local_files_are_taken_from_where_they_are(make_files, tmp_path, how):
    path = tmp_path / "train.en"
    path.write_bytes(BODY)
    files = make_files({"http://far.example": str(tmp_path)})
    file = {
        "path": FileSource(path=str(path)),
        "file": at(path.as_uri()),
        "mirror": at("http://far.example/train.en"),
    }[how]
    with files.open(file) as fetched:
        assert fetched.path == path
        assert (fetched.sha256, fetched.size_bytes, fetched.address) == (
            SHA256, len(BODY), str(path),
        )  # fmt: skip
    files.place(file, tmp_path / "src")
    assert not (tmp_path / "src").samefile(path), "the user may change their file"
    files.clear([file])
    assert path.exists()
    assert files.remote([file]) == []
    assert not files.folder.exists()


@pytest.mark.parametrize("use", ["open", "place"])
def test_local_files_are_checked(files, tmp_path, use):
    path = tmp_path / "train.en"
    path.write_bytes(BODY)

    def take(**checks):
        file = FileSource(path=str(path), **checks)
        return read(files, file) if use == "open" else files.place(file, tmp_path / "src")

    take(md5=MD5, bytes=len(BODY), sha256=SHA256)
    for checks in ({"md5": "0" * 32}, {"bytes": 1}, {"sha256": "0" * 64}):
        with pytest.raises(CorpusError, match=r"train.en` must have"):
            take(**checks)
    path.unlink()
    with pytest.raises(CorpusError, match="does not exist"):
        take()


def test_what_was_changed_is_fetched_again(files, server, address):
    with files.open(at(address)) as fetched:
        path = fetched.path
    os.utime(path, ns=(1, 1))
    assert read(files, at(address))[1] == BODY
    assert len(server.asked) == 1, "the bytes are the same"
    path.write_bytes(OTHER)
    assert read(files, at(address, sha256=SHA256))[1] == BODY
    path.write_bytes(b"short")
    assert read(files, at(address, sha256=SHA256))[1] == BODY
    assert len(server.asked) == 3


@pytest.mark.parametrize("entry", ["", "[]", "{}", '{"mtime_ns": 1, "nonsense": 2}'])
def test_a_damaged_entry_costs_no_download(files, server, address, entry):
    with files.open(at(address)) as fetched:
        fetched.path.with_name(f"{fetched.path.name}.json").write_text(entry)
    assert read(files, at(address))[0] == fetched
    assert len(server.asked) == 1


def test_another_file_than_wanted_is_not_taken(files, server, address):
    read(files, at(address))
    server.bodies["train.en"] = OTHER
    checks = {"md5": hashlib.md5(OTHER).hexdigest(), "bytes": len(OTHER)}
    assert read(files, at(address, **checks))[1] == OTHER
    assert read(files, at(address))[1] == OTHER
    assert len(server.asked) == 2


def test_an_md5_is_measured_when_it_is_asked_for(files, server, address):
    read(files, at(address))
    assert read(files, at(address, md5=MD5))[0].md5 == MD5
    assert len(server.asked) == 1
    server.bodies["train.en"] = OTHER
    with pytest.raises(CorpusError, match=f"must have the md5 {'0' * 32}, but has"):
        read(files, at(address, md5="0" * 32))


def test_a_pin_must_be_met_unless_the_recipe_gives_the_sha256(
    make_files, server, address, tmp_path
):
    read(make_files(), at(address))
    lock = Lock(tmp_path / LOCK_FILE, print)
    lock.add({address: Pin("0" * 64, len(BODY)), f"{address}2": Pin("0" * 64, 7)})
    files = make_files(lock=lock)
    for end, what in (("", f"the sha256 {'0' * 64}"), ("2", "7 bytes")):
        with pytest.raises(CorpusError) as error:
            read(files, at(address + end))
        assert f"must have {what}, pinned in {lock.path}" in str(error.value)
        assert f"remove the line of `{address}{end}` from {lock.path}" in str(error.value)
    assert read(files, at(address, sha256=SHA256))[1] == BODY


def test_clearing_leaves_nothing_but_what_is_in_use(files, server, address):
    files.clear([at(address)])
    read(files, at(address))
    with files.open(at(f"{address}2")) as used:
        files.clear([at(address), at(f"{address}2")])
        assert used.path.read_bytes() == BODY
        kept = [path for path in files.folder.iterdir() if path.is_file()]
        assert sorted(kept) == [used.path, used.path.with_name(f"{used.path.name}.json")]
    files.clear([at(f"{address}2")])
    assert [
        path for path in files.folder.rglob("*") if path.is_file() and path.stat().st_size
    ] == []


def test_what_was_set_aside_goes_when_the_right_file_was_used(files, server, address):
    with pytest.raises(CorpusError):
        read(files, at(address, sha256="0" * 64))
    assert len(list((files.folder / "set-aside").iterdir())) == 2
    read(files, at(address))
    files.clear([at(address)])
    assert list((files.folder / "set-aside").iterdir()) == []


def test_no_secret_is_kept(files, server, address):
    secret = f"{address}?token=hunter2"
    read(files, at(secret))
    with pytest.raises(CorpusError):
        read(files, at(f"{secret}3", sha256="0" * 64))
    kept = [*files.folder.rglob("*")]
    assert all("hunter2" not in path.name for path in kept)
    assert all(b"hunter2" not in path.read_bytes() for path in kept if path.is_file())
    assert "hunter2" not in recorded(secret)


def test_a_file_can_be_open_twice(files, address):
    with files.open(at(address)) as one, files.open(at(address)) as two:
        assert one == two


PROGRAM = """
import sys
from pathlib import Path
from pipeline.sources import FileSource
from pipeline.fetching.fetched import Files
from pipeline.fetching.lock import Lock
files = Files(Path(sys.argv[1]), {}, Lock(Path(sys.argv[1]) / "lock", print), print)
with files.open(FileSource(url=sys.argv[2])) as fetched:
    print(fetched.sha256, flush=True)
"""


def test_two_processes_fetch_an_address_once_and_the_second_says_that_it_waits(
    files, server, address
):
    server.may_answer.clear()
    command = [sys.executable, "-c", PROGRAM, str(files.folder), address]
    where = {"cwd": Path(__file__).parents[3], "text": True, "stdout": subprocess.PIPE}
    first = subprocess.Popen(command, **where)
    while not server.asked:
        assert first.poll() is None
    second = subprocess.Popen(command, **where)
    assert second.stdout.readline() == (
        f"{address}: another run is fetching it; waiting for that\n"
    )
    server.may_answer.set()
    assert [process.communicate(timeout=30)[0] for process in (first, second)] == [
        f"{SHA256}\n"
    ] * 2
    assert len(server.asked) == 1
    entry = json.loads(next(files.folder.glob("*.json")).read_text())
    assert (entry["sha256"], entry["size_bytes"], entry["address"]) == (SHA256, len(BODY), address)
