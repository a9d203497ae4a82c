"""One whole run of the tiny recipe on real Ray, shared by the tests of this folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TINY = str(Path(__file__).parents[1] / "tiny.toml")


class Traduko:
    """Runs the command line in a process of its own."""

    def __init__(self, cwd: Path):
        self.cwd = cwd

    def __call__(self, *arguments, timeout_s=240, **environment):
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *map(str, arguments)],
            cwd=self.cwd,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def json(self, *arguments, **options):
        done = self(*arguments, "--json", **options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def traduko(tmp_path_factory):
    return Traduko(tmp_path_factory.mktemp("cwd"))


@pytest.fixture(scope="session")
def tiny():
    return TINY


@pytest.fixture(scope="session")
def finished(traduko, tmp_path_factory):
    """The root of an uninterrupted run, and what it printed."""
    root = tmp_path_factory.mktemp("finished") / "root"
    return root, traduko.json("run", TINY, "--root", root)
