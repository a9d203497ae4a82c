"""SIGKILL of the driver in every stage, on real Ray; the rerun starts at once."""

import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.stages import STAGE_NAMES, STAGES

DRIVER = Path(__file__).parent / "killed_driver.py"
MOMENTS = ("working", "committing")


def drive(*arguments):
    return subprocess.run(
        [sys.executable, str(DRIVER), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def contents(document):
    """What later stages read, by stage and source: path and sha256 of each file."""
    aside = {stage.name: stage.aside for stage in STAGES}
    found = {}
    for entry in document["stages"]:
        manifest = json.loads((Path(entry["folder"]).parent / "manifest.json").read_text())
        files = manifest["files"]
        if entry["stage"] in ("train", "average"):
            files = [file for file in files if file["path"] not in aside[entry["stage"]]]
        found[entry["stage"], entry["source"]] = files
    return found


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(list(zip(STAGE_NAMES, itertools.cycle(MOMENTS))), id="once"),
        pytest.param(
            list(itertools.product(STAGE_NAMES, MOMENTS)), id="twice", marks=pytest.mark.long
        ),
    ],
)
def test_a_driver_killed_in_every_stage_ends_with_the_uninterrupted_runs_files(
    finished, tiny, tmp_path, kills
):
    _, uninterrupted = finished
    root = tmp_path / "root"
    for stage, moment in kills:
        killed = drive(tiny, root, stage, moment)
        assert killed.returncode == -signal.SIGKILL, f"{stage} {moment}: {killed.stderr}"
    rerun = drive(tiny, root)
    assert rerun.returncode == 0, rerun.stderr
    done = json.loads(rerun.stdout)
    assert [entry["cached"] for entry in done["stages"]][:-1] == [True] * (len(done["stages"]) - 1)
    assert contents(done) == contents(uninterrupted)
    assert done["scores"] == uninterrupted["scores"]
    attempts = list(root.glob("*/*/attempt-*"))
    assert len(attempts) == len(done["stages"]), "abandoned attempts are swept"
