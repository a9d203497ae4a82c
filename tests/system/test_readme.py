"""The commands of the README, run as they are printed."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
NUM_PAIRS = 3000


def commands(heading):
    """The lines of the first shell block under a heading."""
    section = README.read_text(encoding="utf-8").partition(f"## {heading}\n")[2]
    return re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_your_own_text_becomes_translations(shared_data, tmp_path):
    for side in ("en", "de"):
        with gzip.open(shared_data / "tatoeba_de_en" / f"train.{side}.gz", "rb") as file:
            (tmp_path / f"corpus.{side}").write_bytes(b"".join(file.readlines()[:NUM_PAIRS]))
    lines = ["The dog is big.", "", "I see a house.", "😀", "two\u2028lines"]
    (tmp_path / "english.txt").write_text("".join(f"{line}\n" for line in lines))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands("Your own text")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "clean:corpus               depends" in done.stdout
    german = (tmp_path / "german.txt").read_text(encoding="utf-8").split("\n")
    assert len(german) == len(lines) + 1
    assert german[1] == german[-1] == ""
    assert german[0]
    assert "BLEU (13a)" in done.stdout
