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
import psutil
import pytest

from flows.automation import crash_zombies

PROJECT = Path(__file__).resolve().parents[2]
PREFECT = str(Path(sys.executable).parent / "prefect")
DEPLOYMENTS = {
    "run", "download", "clean", "dedup", "vocab", "tokenize", "train", "average", "evaluate",
}  # fmt: skip
DEPENDENT = sorted(DEPLOYMENTS - {"run"})

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(600)]


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


class Stack(dict):
    """How a process of this stack is started, and its worker."""

    def __init__(self, options, worker):
        super().__init__(options)
        self.worker = worker


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """A server, a worker and the deployments of prefect.yaml, from a copy of the project."""
    folder = tmp_path_factory.mktemp("stack")
    project = folder / "project"
    for name in ("flows", "infra", "pipeline", "model"):
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
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PWD": str(project),
        "PYTHONPATH": os.pathsep.join(
            [str(spy(folder / "spy")), *os.environ.get("PYTHONPATH", "").split(":")]
        ),
    }
    options = {"env": environment, "cwd": project}
    server = [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(server, folder / "server.log", **options):
        wait_for(f"http://127.0.0.1:{port}/api/health")
        prefect(options, "work-pool", "create", "traduko", "--type", "process")
        prefect(options, "deploy", "--all")
        worker = [PREFECT, "worker", "start", "--pool", "traduko"]
        with running(worker, folder / "worker.log", **options) as process:
            yield Stack(options, psutil.Process(process.pid))


NOTES = """
import atexit, os, sys

def _note(event, arguments, started=[]):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork"):
        started.append(repr(arguments))
    return started

def _write(started=_note("", ())):
    heavy = [name for name in ("ray", "torch") if name in sys.modules]
    with open(os.path.join(os.path.dirname(__file__), f"{os.getpid()}.txt"), "w") as file:
        file.write("\\n".join([f"argv {sys.argv}", *[f"loaded {name}" for name in heavy], *started]))

sys.addaudithook(lambda event, arguments: _note(event, arguments) and None)
atexit.register(_write)
"""


def spy(folder):
    """A folder for PYTHONPATH: each Python process notes at its end what it started and loaded."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(NOTES)
    return folder


def wait_for(url):
    for _ in range(240):
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=2).is_success:
                return
        time.sleep(0.5)
    raise AssertionError(f"{url} does not answer")


def api(options, method, path, body=None):
    """One call of the server's API."""
    url = f"{options['env']['PREFECT_API_URL']}{path}"
    answer = httpx.request(method, url, json=body, timeout=60)
    assert answer.is_success, answer.text
    return answer.json()


def begin(options, **parameters):
    """A run of the deployment nmt/run, of the tiny recipe."""
    deployment = api(options, "GET", "/deployments/name/nmt/run")["id"]
    body = {"parameters": {"recipe": "tiny.toml", **parameters}}
    return api(options, "POST", f"/deployments/{deployment}/create_flow_run", body)["id"]


def state(options, run):
    return api(options, "GET", f"/flow_runs/{run}")["state"]["type"]


def until(condition, timeout_s=300):
    """What a condition gives once it is true."""
    for _ in range(int(timeout_s / 0.5)):
        found = condition()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError("it has not come about")


ENDS = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}


def end_of(options, run):
    return until(lambda: (found := state(options, run)) in ENDS and found)


def lines(options, run):
    """What a run's log in Prefect says of the recipe."""
    body = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_ASC", "limit": 200}
    found = [entry["message"] for entry in api(options, "POST", "/logs/filter", body)]
    return [line for line in found if line.split()[0].partition(":")[0] in (*DEPENDENT, "another")]


def progress_of(options, run):
    body = {"artifacts": {"flow_run_id": {"any_": [run]}, "type": {"any_": ["progress"]}}}
    return api(options, "POST", "/artifacts/filter", body)


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


def test_a_recipe_of_ones_own_can_be_scheduled(stack):
    prefect(
        stack, "deploy", "flows/nmt.py:nmt", "--name", "nightly", "--pool", "traduko",
        "--param", "recipe=tiny.toml", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin",
    )  # fmt: skip
    made = api(stack, "GET", "/deployments/name/nmt/nightly")
    assert made["parameters"] == {"recipe": "tiny.toml"}
    [schedule] = made["schedules"]
    assert schedule["schedule"]["cron"] == "0 3 * * *"
    assert schedule["active"]
    prefect(stack, "deployment", "delete", "nmt/nightly")


def test_wrong_parameters_are_refused_before_anything_runs(stack):
    done = subprocess.run(
        [PREFECT, "--no-prompt", "deployment", "run", "nmt/run", "--param", "only=walk"],
        capture_output=True, text=True, timeout=60, check=False, **stack,
    )  # fmt: skip
    assert done.returncode != 0
    assert "only" in done.stdout + done.stderr


def test_a_cached_run_starts_nothing_but_the_flow(stack):
    folder = Path(stack["env"]["PYTHONPATH"].partition(os.pathsep)[0])
    before = set(folder.glob("*.txt"))
    run = begin(stack)
    assert end_of(stack, run) == "COMPLETED"
    assert all("cached" in line for line in lines(stack, run))
    notes = until(lambda: [path.read_text() for path in set(folder.glob("*.txt")) - before])
    [flow] = [note for note in notes if "prefect/engine.py" in note.partition("\n")[0]]
    more = [line for line in flow.splitlines()[1:] if "uname" not in line]  # Python's `platform`
    assert more == [], flow


def test_of_two_runs_of_one_recipe_the_second_waits_and_finds_everything(stack):
    runs = [begin(stack, set={"train.max_steps": 50}) for _ in range(2)]
    assert [end_of(stack, run) for run in runs] == ["COMPLETED"] * 2
    logs = [lines(stack, run) for run in runs]
    waited = [
        log for log in logs if any("another run of `tiny` is at work" in line for line in log)
    ]
    [log] = waited
    assert "(process " in log[0]
    assert log[0].endswith("; waiting for that")
    assert all("cached" in line for line in log[1:])
    [built] = [other for other in logs if other is not log]
    assert sum("built in" in line for line in built) == 3, built


def test_each_line_is_said_once_in_the_run_and_once_by_the_worker(stack):
    run = begin(stack, set={"train.max_steps": 50}, only="evaluate", force=True)
    assert end_of(stack, run) == "COMPLETED"
    told = lines(stack, run)
    assert len(told) == len(set(told)) == 10, told
    [built] = [line for line in told if "built in" in line]
    worker = (stack["cwd"].parent / "worker.log").read_text()
    assert worker.count(built) == 1


def descendants(options):
    """Everything that the worker has started."""
    return options.worker.children(recursive=True)


def test_a_cancelled_run_leaves_no_ray_behind_and_goes_on_when_run_again(stack):
    run = begin(stack, set={"train.max_steps": 1_000_000})
    [progress, *_] = until(
        lambda: [a for a in progress_of(stack, run) if a["key"] == "traduko-train"]
    )
    assert "of 1,000,000 steps" in progress["description"]
    started = descendants(stack)
    assert any("raylet" in process.name() for process in started)
    prefect(stack, "flow-run", "cancel", run)
    assert end_of(stack, run) == "CANCELLED"
    _, alive = psutil.wait_procs(started, timeout=60)
    assert [process for process in alive if process.is_running()] == []
    again = begin(stack, set={"train.max_steps": 1_000_000})
    until(lambda: [a for a in progress_of(stack, again) if a["key"] == "traduko-train"])
    prefect(stack, "flow-run", "cancel", again)
    assert end_of(stack, again) == "CANCELLED"


def direct(options, *arguments):
    """`traduko run` of the tiny recipe in a shell, whose run this server sees."""
    command = [sys.executable, "-m", "flows.cli", "run", "tiny.toml", "--root", "shell", *arguments]
    log = options["cwd"].parent / "shell.log"
    return running([*command, "--set", "train.max_steps=1000000"], log, **options)


def running_run(options):
    body = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
    [run] = api(options, "POST", "/flow_runs/filter", body)
    return run["id"]


def events(options):
    """The kinds of what the training in a shell has noted."""
    from pipeline.events import read_events

    paths = list(options["cwd"].glob("shell/work/train/*/events.jsonl"))
    return [event["kind"] for path in paths for event in read_events(path)]


def test_a_killed_run_becomes_crashed_leaves_nothing_and_goes_on_when_run_again(stack):
    crash_zombies(stack["env"]["PREFECT_API_URL"], 45)
    with direct(stack) as process:
        until(lambda: list(stack["cwd"].glob("shell/work/train/*/step-*")))
        run = running_run(stack)
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(60)
        assert end_of(stack, run) == "CRASHED"
        _, alive = psutil.wait_procs(started, timeout=180)  # Ray's agents seek their head for 60 s
        assert alive == []
    assert "process is gone" in api(stack, "GET", f"/flow_runs/{run}")["state"]["message"]
    crash_zombies(stack["env"]["PREFECT_API_URL"], 600)
    with direct(stack) as process:
        until(lambda: "resumed" in events(stack))
        again = running_run(stack)
        assert again != run
        prefect(stack, "flow-run", "cancel", again)
        assert process.wait(120) == 130
        assert state(stack, again) == "CANCELLED"
    on_terminal = (stack["cwd"].parent / "shell.log").read_text().splitlines()
    told = lines(stack, again)
    assert len(told) == len(set(told)) == 7, told  # up to tokenize
    assert [on_terminal.count(line) for line in told] == [1] * 7
