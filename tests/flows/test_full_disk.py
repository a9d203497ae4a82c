"""A disk that is full: one clear line, nothing half-written, and the rerun goes on."""

import os
import re
import subprocess

import pytest

from flows.cli import main

STAGES = ["download", "clean", "dedup", "vocab", "tokenize"]

pytestmark = pytest.mark.usefixtures("without_engines")


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"needs the right to mount a small disk: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk):
    """Take all of the disk but a page; the file to remove again."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    ballast.write_bytes(bytes(free.f_bavail * free.f_bsize - free.f_bsize))
    return ballast


@pytest.fixture
def recipe(tmp_path):
    words = {"en": "line {} says something of its own", "de": "hier sagt Zeile {} etwas Eigenes"}
    for side, text in words.items():
        lines = "".join(text.format(number) + "\n" for number in range(4000))
        (tmp_path / f"corpus.{side}").write_text(lines)
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\nsrc = "en"\ntgt = "de"\n[[download.train]]\nname = "corpus"\n'
        'src = "corpus.en"\ntgt = "corpus.de"\n[vocab]\nsize = 120\nkind = "bpe"\n'
    )
    return str(path)


@pytest.mark.parametrize("stage", ["download", "clean", "dedup", "vocab", "tokenize"])
def test_a_full_disk_is_one_line_and_costs_nothing_that_is_finished(disk, recipe, capsys, stage):
    arguments = ["run", recipe, "--root", str(disk / "root"), "--only"]
    before, after = STAGES[: STAGES.index(stage)], STAGES[STAGES.index(stage) :]
    for name in before:
        assert main([*arguments, name]) == 0
    ballast = fill(disk)
    capsys.readouterr()
    assert main([*arguments, stage]) == 1
    [line] = [line for line in capsys.readouterr().err.splitlines() if "traduko: " in line]
    assert re.search(r"no space .*left on", line, re.IGNORECASE)
    assert re.search(r"Free some|Make room", line)
    assert not list((disk / "root").glob(f"{stage}/*/attempt-*")), "nothing half-written"
    ballast.unlink()
    for name in after:
        assert main([*arguments, name]) == 0, capsys.readouterr().err
    cached = capsys.readouterr().err
    assert all(f"{name}:corpus" in cached or name in cached for name in before)
