"""The whole pipeline on a cluster of three machines, with their own addresses where that can be."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.system.machines.namespaces import PROJECT, CannotBeMadeError, machines, wait_until
from tests.system.machines.processes import processes
from tests.system.test_kills import contents

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = [sys.executable, "-m", "tests.system.machines.driver"]
WORKERS = {"1", "2"}
"""Machines that run work."""
QUICK_TO_GO_ON = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "30"}


@pytest.fixture(scope="module")
def cluster():
    folder = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))  # Ray's sockets need a short path
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            made = stack.enter_context(machines(folder))
        except CannotBeMadeError as error:
            print(f"no network namespaces: {error}")
            made = stack.enter_context(processes(folder))
        yield made


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process of one machine makes of the recipe."""
    folder = tmp_path_factory.mktemp("alone")
    done = subprocess.run(
        [*DRIVER, str(folder / "root"), str(folder)], cwd=PROJECT,
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def place(cluster):
    """A folder that all machines see."""
    folder = cluster.folder / "place"
    (folder / "notes").mkdir(parents=True)
    return folder


def start(cluster, root, notes, num_workers):
    settings = [f"{name}={value}" for name, value in QUICK_TO_GO_ON.items()]
    command = ["env", *settings, *DRIVER, root, notes, cluster.head, num_workers]
    return cluster.start(
        0, [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(driver):
    out, told = driver.communicate(timeout=600)
    assert driver.returncode == 0, told
    return json.loads(out)


def where(notes, stage):
    """The machines that worked for a stage."""
    return {path.name.partition("@")[2] for path in notes.glob(f"{stage}@*")}


@pytest.fixture(scope="module")
def spread(cluster, place):
    """The run on all machines."""
    return result(start(cluster, place / "root", place / "notes", "2"))


def test_a_machine_that_does_not_see_the_root_is_named_before_anything_runs(cluster, place):
    if not cluster.hidden:
        pytest.skip("machines that are processes of one see the same folders")
    driver = start(cluster, cluster.hidden / "root", place / "notes", "2")
    _, told = driver.communicate(timeout=200)
    assert driver.returncode != 0
    assert f"({cluster.address_of(2)}) does not see it" in told
    assert not list((cluster.hidden / "root").glob("download/*"))


def test_work_spreads_over_the_machines_and_gives_the_same_bits(cluster, place, spread, alone):
    for stage in ("tokenize", "train", "evaluate"):
        assert where(place / "notes", stage) == WORKERS, stage
    assert contents(spread) == contents(alone)
    assert spread["scores"] == alone["scores"]


def test_training_goes_on_without_a_machine_whose_link_is_cut(cluster, place, spread, alone):
    root, notes = place / "again", place / "notes-again"
    notes.mkdir()
    (notes / "slow").touch()
    shutil.copytree(place / "root", root)
    for folder in ("train", "average", "evaluate", "work"):
        shutil.rmtree(root / folder)
    driver = start(cluster, root, notes, "[1, 2]")
    wait_until(lambda: driver.poll() is not None or list(root.glob("work/train/*/step-*")))
    assert where(notes, "train") == WORKERS
    cluster.cut(2)
    (notes / "slow").unlink()
    finished = result(driver)
    assert finished["scores"] == alone["scores"]
    assert contents(finished) == contents(alone)
    stats = {entry["stage"]: entry["stats"] for entry in finished["stages"]}
    assert stats["train"]["steps"] == 40
