"""Two shells with one recipe on one root at once: each artifact is built once, by one of them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TINY = Path(__file__).parents[1] / "tiny.toml"
RUN = """
import contextlib, json, sys
from flows.progress import Terminal
from flows.run import Workplace, document, make_run
from pipeline.compute import InProcess

recipe, root, steps, alone = sys.argv[1:]
terminal = Terminal()
overrides = {
    "compute.num_workers": 1, "train.max_steps": int(steps), "train.checkpoint_every_steps": 5,
    "download.test": [], "download.dev": [], "download.train": [
        {"name": "train", "builtin": {"split": "train", "num_train": 400}}
    ],
}
run = make_run(recipe, overrides, root=root, environment={}, say=terminal.say, remind=terminal.remind)
with run.alone() if alone == "alone" else contextlib.nullcontext():
    results = run.execute(Workplace(InProcess(), terminal))
print(json.dumps(document(run, results)))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def begin(tmp_path):
    """Starts a run in a process of its own, without engines."""
    begun = []

    def start(steps=10, alone="alone"):
        arguments = [sys.executable, "-c", RUN, TINY, tmp_path / "root", steps, alone]
        process = subprocess.Popen(
            list(map(str, arguments)), env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def ends(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out)["stages"], err


def built(stages):
    return [entry["stage"] for entry in stages if not entry["cached"]]


@pytest.mark.parametrize("alone", ["alone", "together"])
def test_each_artifact_is_built_by_one_and_reused_by_the_other(begin, tmp_path, alone):
    runs = [begin(alone=alone), begin(alone=alone)]
    ended = [ends(run) for run in runs]
    everything = [entry["stage"] for entry in ended[0][0]]
    assert sorted(built(ended[0][0]) + built(ended[1][0])) == sorted(everything)
    assert [s["folder"] for s in ended[0][0]] == [s["folder"] for s in ended[1][0]]
    assert len(list((tmp_path / "root").glob("*/*/attempt-*"))) == len(everything)
    waits = [line for _, err in ended for line in err.splitlines() if "waiting for" in line]
    assert waits, ended
    assert all(re.search(r"\(process \d+ on \S+, since \d\d:\d\d:\d\d", line) for line in waits)
    if alone == "alone":
        assert len(waits) == 1
        assert sorted(map(len, (built(stages) for stages, _ in ended))) == [0, len(everything)]


def test_a_killed_run_frees_the_one_that_waits_for_it_which_finds_what_was_finished(begin):
    first = begin(steps=1_000_000)
    says(first, "tokenize")
    second = begin(steps=1_000_000)
    line = says(second, "waiting for that")
    assert "another run of `tiny` is at work in " in line
    assert f"(process {first.pid} on " in line
    third = begin(steps=1_000_000, alone="together")
    line = says(third, "waiting for that")
    assert line.startswith(f"train: another run is building it (process {first.pid} on ")
    os.kill(first.pid, signal.SIGKILL)
    third.kill()
    assert says(second, "tokenize").split()[1] == "cached"


def says(process, what):
    """The next line of its standard error that holds this."""
    for line in process.stderr:
        if what in line:
            return line.rstrip("\n")
    raise AssertionError(f"it ended without saying {what}")
