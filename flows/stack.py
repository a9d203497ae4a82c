"""The stack of a root: its place, its store, its deployments."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import infra
from flows.environment import NO_REPORTING, OTHERS
from flows.mlflow_store import open_store, quietly
from infra.stack.services import (
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
