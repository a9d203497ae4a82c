"""Deployments on a real Prefect server with a process worker, all on this machine."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

PROJECT = Path(__file__).resolve().parents[2]
PREFECT = str(Path(sys.executable).parent / "prefect")
DEPLOYMENTS = {
    "run", "download", "clean", "dedup", "vocab", "tokenize", "train", "average", "evaluate",
}  # fmt: skip

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(arguments, log, **options):
    """A process of our own, ended with everything that it started."""
    with log.open("w") as output:
        process = subprocess.Popen(
            arguments, stdout=output, stderr=output, start_new_session=True, **options
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A server, a worker and the deployments of prefect.yaml, from a copy of the project."""
    folder = tmp_path_factory.mktemp("stack")
    project = folder / "project"
    for name in ("flows", "pipeline", "model"):
        shutil.copytree(PROJECT / name, project / name)
    for name in ("prefect.yaml", "pyproject.toml"):
        shutil.copy(PROJECT / name, project / name)
    shutil.copy(PROJECT / "tests" / "tiny.toml", project / "tiny.toml")
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_HOME": str(folder / "home"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PWD": str(project),
    }
    options = {"env": environment, "cwd": project}
    server = [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(server, folder / "server.log", **options):
        wait_for(f"http://127.0.0.1:{port}/api/health")
        prefect(options, "work-pool", "create", "traduko", "--type", "process")
        prefect(options, "deploy", "--all")
        worker = [PREFECT, "worker", "start", "--pool", "traduko"]
        with running(worker, folder / "worker.log", **options):
            yield options


def wait_for(url):
    for _ in range(240):
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=2).is_success:
                return
        time.sleep(0.5)
    raise AssertionError(f"{url} does not answer")


def prefect(options, *arguments):
    done = subprocess.run(
        [PREFECT, "--no-prompt", *arguments],
        capture_output=True, text=True, timeout=400, check=False, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def traduko_plan(options):
    import json

    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "plan", "tiny.toml", "--json"],
        capture_output=True, text=True, timeout=60, check=True, **options,
    )  # fmt: skip
    return json.loads(done.stdout)["stages"]


def attempts(options, stage):
    return {path.name for path in (options["cwd"] / "artifacts" / stage).glob("*/attempt-*")}


def test_a_deployment_runs_the_recipe_and_the_shell_finds_it_cached(stack):
    prefect(stack, "deployment", "run", "nmt/run", "--param", "recipe=tiny.toml", "--watch")
    assert {stage["status"] for stage in traduko_plan(stack)} == {"cached"}


def test_a_stages_deployment_reruns_that_stage_alone(stack):
    before = {stage: attempts(stack, stage) for stage in ("average", "evaluate")}
    prefect(stack, "deployment", "run", "nmt/evaluate", "--param", "recipe=tiny.toml", "--watch")
    assert attempts(stack, "average") == before["average"]
    assert attempts(stack, "evaluate") != before["evaluate"]


def test_every_stage_has_a_deployment(stack):
    listed = prefect(stack, "deployment", "ls", "-o", "json")
    assert all(f'"name": "{name}"' in listed for name in DEPLOYMENTS)


def test_wrong_parameters_are_refused_before_anything_runs(stack):
    done = subprocess.run(
        [PREFECT, "--no-prompt", "deployment", "run", "nmt/run", "--param", "only=walk"],
        capture_output=True, text=True, timeout=60, check=False, **stack,
    )  # fmt: skip
    assert done.returncode != 0
    assert "only" in done.stdout + done.stderr
