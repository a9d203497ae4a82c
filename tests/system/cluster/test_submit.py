"""`traduko submit`, and Ray's own `ray job submit`, against a real cluster that asks for a token."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.system.cluster.head import RAY, without_ray
from tests.system.test_kills import contents

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def away(tmp_path_factory, tiny):
    """Another folder, with its own copy of a recipe that another one extends."""
    folder = tmp_path_factory.mktemp("away")
    (folder / "base.toml").write_text(Path(tiny).read_text())
    (folder / "own.toml").write_text('extends = "base.toml"\n')
    return folder


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory):
    return tmp_path_factory.mktemp("shared") / "root"


class Shell:
    """A terminal in another folder and with another home than the cluster's."""

    def __init__(self, folder, head):
        self.folder, self.head = folder, head
        self.environment = without_ray() | head.token | {
            "HOME": str(folder), "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    def command(self, *arguments):
        base = [sys.executable, "-m", "flows.cli", "submit", "--ray", self.head.dashboard]
        return [*base, *map(str, arguments)]

    def __call__(self, *arguments, **environment):
        return subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment | environment,
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip

    def start(self, *arguments):
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip


@pytest.fixture(scope="module")
def submit(away, head):
    return Shell(away, head)


@pytest.fixture(scope="module")
def submitted(submit, shared_root):
    """The finished job of the tiny recipe."""
    return submit("own.toml", "--root", shared_root, "--json")


def test_a_submitted_run_gives_the_artifacts_of_a_local_one_and_streams_its_log(
    submitted, finished, shared_root
):
    assert submitted.returncode == 0, submitted.stderr
    document = json.loads(submitted.stdout)
    assert document["root"] == str(shared_root)
    assert contents(document) == contents(finished[1])
    assert document["scores"] == finished[1]["scores"]
    assert "train                      built in" in submitted.stderr
    assert submitted.stderr.startswith("Job tiny-")


def test_wrong_input_found_on_the_cluster_ends_with_two(submit, shared_root, submitted):
    missing = 'download.dev=[{name = "dev", src = "a.en", tgt = "a.de"}]'
    done = submit("own.toml", "--root", shared_root, "--set", missing, "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "input"
    assert f"File {submit.folder / 'a.en'} does not exist." in error["message"]


@pytest.mark.long
def test_a_failure_on_the_cluster_ends_with_one(submit, shared_root, submitted):
    dead = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = submit("own.toml", "--root", shared_root, "--only", "average", "--force", **dead)
    assert done.returncode == 1
    assert "Prefect's API at http://127.0.0.1:9/api does not answer" in done.stdout
    assert done.stderr.splitlines()[-1].endswith("ended with exit code 1.")


@pytest.mark.long
def test_an_interrupted_terminal_leaves_the_job_which_can_be_found_followed_and_stopped(
    submit, shared_root, submitted
):
    longer = ("own.toml", "--root", shared_root, "--set", "train.max_steps=100000")
    watcher = submit.start(*longer)
    job = watcher.stdout.readline().split()[-1]
    try:
        wait_until(lambda: steps_of(shared_root) > 50)
        watcher.send_signal(signal.SIGINT)
        told, _ = watcher.communicate(timeout=60)
        assert watcher.returncode == 130, told
        assert f"Interrupted. Job {job} goes on." in told
        follow = f"traduko submit --ray {submit.head.dashboard} --follow {job}"
        assert follow in told
        again = submit(*longer, "--detach", "--json")
        assert json.loads(again.stdout) == {"job": job, "status": "started"}
        assert f"Job {job} does this already." in again.stderr
        other = submit("own.toml", "--root", shared_root, "--set", "train.max_steps=77")
        assert other.returncode == 2
        assert f"Job {job} builds `tiny` in {shared_root} already" in other.stderr
    finally:
        stopped = submit("--stop", job)
    assert (stopped.returncode, stopped.stdout) == (0, f"Job {job} is stopped.\n")
    kinds = [event["kind"] for event in events_of(shared_root)]
    assert kinds[-2:] == ["checkpoint", "stopped"], "it had the time to save"
    followed = submit("--follow", job)
    assert followed.returncode == 130
    assert "clean:quickstart           cached" in followed.stdout
    assert followed.stderr.splitlines()[-1].endswith("was stopped. Submit it again to go on.")


@pytest.mark.parametrize(
    ("address", "environment", "words"),
    [
        (None, {"RAY_AUTH_MODE": "disabled"}, "asks for a token, and RAY_AUTH_MODE is disabled."),
        (None, {"RAY_AUTH_TOKEN": "wrong"}, "refuses the token from RAY_AUTH_TOKEN."),
        ("http://127.0.0.1:9", {}, "No Ray cluster answers at http://127.0.0.1:9 ("),
    ],
)
def test_a_wrong_token_and_a_silent_api_are_one_line(submit, address, environment, words, tmp_path):
    done = submit(
        "quickstart", "--root", tmp_path, *(["--ray", address] if address else []), **environment
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_job_is_said(submit):
    done = submit("--follow", "none-1")
    assert done.returncode == 2
    assert done.stderr.endswith(f"{submit.head.dashboard} knows no job none-1.\n")


@pytest.mark.long
def test_rays_own_job_submit_runs_the_command_on_the_cluster(
    submit, head, shared_root, submitted, tiny
):
    traduko = Path(sys.executable).parent / "traduko"
    stage = ["--only", "evaluate", "--force", "--root", str(shared_root), "--ray", "auto"]
    done = subprocess.run(
        [RAY, "job", "submit", "--address", head.dashboard, "--", str(traduko), "run", tiny, *stage],
        cwd=submit.folder, env=submit.environment,
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "average                    cached" in done.stdout
    assert "evaluate                   built in" in done.stdout


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            ["compute.num_workers=8", "train.micro_batches_per_step=8"],
            "`compute.num_workers` must be at most 2, for each worker takes 1 CPU and the cluster",
        ),
        (
            ["compute.resources.clean.custom={highmem=1}"],
            "Each task of clean takes 1 CPU and 1 highmem (`compute.resources.clean`), but no ",
        ),
    ],
)
def test_more_than_the_cluster_has_is_refused_before_the_first_stage(submit, tmp_path, asked, told):
    sets = [word for each in asked for word in ("--set", each)]
    done = submit("own.toml", "--root", tmp_path / "other", *sets)
    assert done.returncode == 2
    assert told in done.stdout
    assert not list((tmp_path / "other").glob("download/*"))


def events_of(root):
    found = []
    for path in root.glob("work/train/*/events.jsonl"):
        with contextlib.suppress(ValueError):
            found += [json.loads(line) for line in path.read_text().splitlines()]
    return found


def steps_of(root):
    return max((event["step"] for event in events_of(root)), default=0)


def wait_until(holds):
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.25)
    raise AssertionError("it takes too long")
