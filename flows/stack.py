"""The stack of a root: its place, and what Prefect is told once its server answers."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

import infra
from flows.environment import NO_REPORTING, OTHERS
from flows.mlflow_store import open_store, quietly
from infra.stack.services import (
    HEARTBEAT_S,
    PORTS,
    Service,
    Site,
    prefect_environment,
    services,
    store_uri,
)
from infra.stack.stack import Stack
from infra.stack.state import State
from pipeline.errors import TradukoError

SERVICES = ("ray", "mlflow", "prefect", "worker")
"""In the order in which they are started."""
SERVICE_PORTS = {
    "ray": ("ray", "ray-dashboard", "ray-client", "ray-agent"),
    "mlflow": ("mlflow",),
    "prefect": ("prefect",),
    "worker": (),
}
DEPLOYMENTS = Path(infra.__file__).parent / "prefect.yaml"
DEPLOY_TIMEOUT_S = 300
API_TIMEOUT_S = 30.0
NUM_TRIES, PAUSE_S = 10, 2.0
"""Of requests while Prefect's database is busy, as it is at its start."""
SILENCE_S = 3 * HEARTBEAT_S
"""After so long without a heartbeat a flow run counts as crashed."""
AUTOMATION = "traduko: crash flow runs whose process is gone"
ENDS = ("Completed", "Failed", "Cancelled", "Crashed")


def stack_of(root: Path, say: Callable[[str], None]) -> Stack:
    """The stack of a root."""
    return Stack(root / "stack", say)


def site_of(root: Path, memory: State) -> Site:
    """Where the stack of a root lives, as it remembers itself."""
    folder = root / "stack"
    return Site(
        root=root,
        folder=folder,
        ports={**PORTS, **memory.ports},
        scratch=Path(memory.scratch or folder / "ray"),
        environment={**os.environ, **NO_REPORTING, **OTHERS, "PREFECT_CLI_PROMPT": "false"},
    )


def services_of(root: Path, memory: State) -> list[Service]:
    """The services of a root's stack."""
    return services(site_of(root, memory))


def exports_of(site: Site) -> dict[str, str]:
    """What a shell needs to use the stack; its programs report nothing to anybody either."""
    return {**site.exports, **NO_REPORTING}


def make_store(root: Path) -> None:
    """MLflow's tables, made once: several processes that make them at once break the file.

    Raises:
        TradukoError: If MLflow cannot use the store.
    """
    try:
        with quietly():
            open_store(store_uri(root), "Default", root / "mlflow")
    except Exception as error:  # noqa: BLE001 - MLflow's, its database's
        raise TradukoError(f"MLflow's store in {root / 'mlflow'} cannot be used: {error}") from None


def deploy(site: Site, folder: Path) -> None:
    """All deployments of prefect.yaml; their runs begin in this folder, on the stack's Ray.

    Raises:
        TradukoError: If Prefect refuses.
    """
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all",
               "--prefect-file", str(DEPLOYMENTS)]  # fmt: skip
    environment = {**prefect_environment(site), "PWD": str(folder), "TRADUKO_RAY": "auto"}
    done = subprocess.run(  # noqa: S603 - our own command
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEPLOY_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise TradukoError(f"Prefect did not take the deployments of {DEPLOYMENTS}:\n{last}")


def crash_silent_runs(api: str) -> None:
    """The automation that marks a flow run as Crashed once its process sends no more heartbeats.

    Made once; one that is there is brought up to date.

    Args:
        api: Of Prefect, ending in `/api`.

    Raises:
        TradukoError: If Prefect refuses.
    """
    by_name = {"automations": {"name": {"any_": [AUTOMATION]}}}
    with httpx.Client(base_url=api, timeout=API_TIMEOUT_S, trust_env=False) as client:
        found = _tell(client, "POST", "/automations/filter", by_name).json()
        if found:
            _tell(client, "PUT", f"/automations/{found[0]['id']}", _automation())
        else:
            _tell(client, "POST", "/automations/", _automation())


def _tell(client: httpx.Client, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
    """Ask Prefect for something, again while its database is busy.

    Raises:
        TradukoError: If it refuses.
    """
    answer = _ask(client, method, path, body)
    for _ in range(NUM_TRIES):
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
        time.sleep(PAUSE_S)
        answer = _ask(client, method, path, body)
    if not answer.is_success:
        raise TradukoError(
            f"Prefect must take what `traduko up` tells it at {path}, but answers "
            f"{answer.status_code}: {answer.text[:500]}"
        )
    return answer


def _ask(client: httpx.Client, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
    try:
        return client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise TradukoError(f"Prefect's server does not answer at {path}: {error}") from None


def _automation() -> Mapping[str, Any]:
    heartbeat = "prefect.flow-run.heartbeat"
    return {
        "name": AUTOMATION,
        "description": f"No heartbeat for {SILENCE_S} s: the run's process is gone.",
        "enabled": True,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "after": [heartbeat],
            "expect": [heartbeat, *(f"prefect.flow-run.{end}" for end in ENDS)],
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": timedelta(seconds=SILENCE_S).total_seconds(),
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "name": "Crashed",
                "message": f"No heartbeat for {SILENCE_S} s: its process is gone. "
                "Run it again; it goes on where it was.",
            }
        ],
    }
