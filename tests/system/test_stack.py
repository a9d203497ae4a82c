"""`traduko up` to `traduko down` for real: deployments run on the stack, and nothing is left."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from infra.stack import processes, state
from infra.stack.ports import is_free
from pipeline.events import EVENTS_FILE, read_events

PREFECT = str(Path(sys.executable).parent / "prefect")

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stack")


def traduko(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def up(folder):
    """What `up` says, with ports of its own; down again at the end, whatever happens."""
    try:
        yield json.loads(traduko(folder, "up", "--any-port", "--timeout", "600", "--json"))
    finally:
        traduko(folder, "down")


def deployment(folder, up, name, *parameters):
    options = [word for parameter in parameters for word in ("--param", parameter)]
    done = subprocess.run(
        [PREFECT, "--no-prompt", "deployment", "run", f"nmt/{name}", *options, "--watch"],
        cwd=folder, env={**os.environ, **up["environment"]},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    log = folder / "artifacts" / "stack" / "logs" / "worker.log"
    assert done.returncode == 0, done.stdout + done.stderr + log.read_text()[-4000:]


def attempts(folder, stage):
    return {path.name for path in (folder / "artifacts" / stage).glob("*/attempt-*")}


def test_all_services_answer_and_all_deployments_are_there(folder, up):
    found = json.loads(traduko(folder, "status", "--json"))["services"]
    assert {each["status"] for each in found} == {"running"}
    again = json.loads(traduko(folder, "up", "--json"))
    assert again["started"] == []
    assert again["environment"] == up["environment"]


def test_everything_listens_on_this_machine_alone(folder, up):
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in family(folder)
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_a_deployment_runs_the_recipe_on_the_stacks_ray(folder, up, tiny):
    recipe = folder / "mine.toml"  # named as seen from where `up` was called
    recipe.write_text(Path(tiny).read_text())
    deployment(folder, up, "run", "recipe=mine.toml")
    planned = json.loads(traduko(folder, "plan", "mine.toml", "--json"))["stages"]
    assert {stage["status"] for stage in planned} == {"cached"}
    assert any("ray::" in process.name() for process in family(folder))


def test_a_stages_deployment_reruns_that_stage_alone(folder, up):
    before = {stage: attempts(folder, stage) for stage in ("train", "average")}
    deployment(folder, up, "average", "recipe=mine.toml")
    assert attempts(folder, "train") == before["train"]
    assert attempts(folder, "average") != before["average"]


def page(address):
    """The text of a page once its scripts have run, in a real browser."""
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu",
         "--virtual-time-budget=40000", "--dump-dom", address],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return " ".join(
        re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", done.stdout, flags=re.DOTALL).split()
    )


@pytest.mark.long
def test_both_pages_show_the_run_in_a_browser(folder, up, tiny):
    if not shutil.which("chromium"):
        pytest.skip("needs a browser (apt-get install chromium)")
    (folder / "mine.toml").write_text(Path(tiny).read_text())
    deployment(folder, up, "run", "recipe=mine.toml")
    prefect, mlflow = (
        up["environment"][name].removesuffix("/api")
        for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
    )
    [run, *_] = httpx.post(f"{prefect}/api/flow_runs/filter", json={}).raise_for_status().json()
    shown = page(f"{prefect}/runs/flow-run/{run['id']}")
    assert all(word in shown for word in ("Flow nmt", "Deployment run", "Completed", "Task runs"))
    found = httpx.get(f"{mlflow}/ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name=tiny")
    number = found.raise_for_status().json()["experiment"]["experiment_id"]
    shown = page(f"{mlflow}/#/experiments/{number}/runs")
    assert "Experiments tiny Training runs" in shown
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown), "the run is named by its start"


def test_down_lets_a_job_save_and_leaves_nothing(folder, up, tiny):
    endless = ["--set", "name=endless", "--set", "train.max_steps=1000000"]
    job = [sys.executable, "-m", "flows.cli", "submit", tiny, *endless, "--detach"]
    environment = {**os.environ, **up["environment"]}
    subprocess.run(job, cwd=folder, env=environment, check=True, timeout=300, capture_output=True)
    events = wait_for_a_new_step(folder / "artifacts" / "work" / "train")
    memory = state.read(folder / "artifacts" / "stack", print)
    ran = family(folder)
    assert len(ran) > 10
    traduko(folder, "down")
    assert [process for process in ran if not processes.is_over(process)] == []
    assert processes.family(memory.mark) == set()
    assert all(is_free(port) for port in memory.ports.values())
    assert not Path(memory.scratch).exists()
    assert [event["kind"] for event in read_events(events)[-2:]] == ["checkpoint", "stopped"]


def wait_for_a_new_step(work):
    """The events of the training that goes on there, once it is past the recipe's own end."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        for step in work.glob("*/step-*"):
            if int(step.name.partition("-")[2]) > 40:
                return step.parent / EVENTS_FILE
        time.sleep(0.5)
    raise AssertionError("nothing is trained")


def family(folder):
    return processes.family(state.read(folder / "artifacts" / "stack", print).mark)
