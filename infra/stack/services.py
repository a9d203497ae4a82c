"""The four services: how each is started on this machine, where it answers, how it is asked.

All listen on 127.0.0.1 alone. Ray does so only where it takes its cluster for a single machine's,
which its variable for Windows and macOS decides: else its ports listen on every address.
"""

import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from infra.stack.ports import LOOPBACK

PORTS = {
    "prefect": 4200,
    "mlflow": 5000,
    "ray": 6379,
    "ray-dashboard": 8265,
    "ray-client": 10001,
    "ray-agent": 52365,
}
"""Where each listens unless told otherwise."""
POOL = "traduko"
OBJECT_STORE_BYTES = 200 << 20
"""Of Ray: only small notes pass through it, rows go by files."""
HEALTH_TIMEOUT_S = 5.0
SINGLE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Makes 127.0.0.1 the address of Ray's node, for the head and for those that connect to it."""


HOST = "ray"
"""The service that runs other people's programs, and holds nothing that is not lost anyway."""
_OF_THE_HOST = re.compile(
    r"^ray::|^ray-dashboard|/(site|dist)-packages/ray/|-m ray\.|multiprocessing\.\w+ import main"
)


def is_job(command_line: str) -> bool:
    """Whether a process of the host's family is somebody's program, and no part of Ray."""
    return not _OF_THE_HOST.search(command_line)


@dataclass(frozen=True)
class Service:
    """One service of a stack."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    address: str
    """What a person opens or a program connects to."""
    ports: tuple[str, ...]
    """Names of the ports it listens on."""
    ask: Callable[[], None]
    """Raises if it does not answer as it should."""
    needs: tuple[str, ...] = ()
    """Services that must answer before it is started."""


@dataclass(frozen=True)
class Site:
    """Where a stack lives."""

    root: Path
    """Of the artifacts."""
    folder: Path
    """Of the stack's own files."""
    ports: Mapping[str, int]
    scratch: Path
    """Ray's folder."""
    environment: Mapping[str, str]
    """What every service inherits."""

    def url(self, port: str) -> str:
        """An HTTP address."""
        return f"http://{LOOPBACK}:{self.ports[port]}"

    @property
    def token_file(self) -> Path:
        """Ray's token."""
        return self.folder / "ray-token"

    @property
    def exports(self) -> dict[str, str]:
        """What a shell needs to use the stack."""
        return {
            "TRADUKO_ROOT": str(self.root),
            "PREFECT_API_URL": f"{self.url('prefect')}/api",
            "MLFLOW_TRACKING_URI": self.url("mlflow"),
            "RAY_ADDRESS": f"{LOOPBACK}:{self.ports['ray']}",
            "RAY_API_SERVER_ADDRESS": self.url("ray-dashboard"),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            **SINGLE_MACHINE,
        }


def services(site: Site) -> list[Service]:
    """All four, those that others need first."""
    return [_ray(site), _mlflow(site), _prefect(site), _worker(site)]


def make_token(path: Path) -> None:
    """Ray's token, readable by this user alone; one that is there stays."""
    if path.exists():
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))


def _ray(site: Site) -> Service:
    command = [
        *_module("ray.scripts.scripts"), "start", "--head", "--block",
        "--port", str(site.ports["ray"]),
        "--dashboard-host", LOOPBACK,
        "--dashboard-port", str(site.ports["ray-dashboard"]),
        "--ray-client-server-port", str(site.ports["ray-client"]),
        "--dashboard-agent-listen-port", str(site.ports["ray-agent"]),
        "--min-worker-port", "0", "--max-worker-port", "0",  # any free one: none of 10002 to 19999
        "--temp-dir", str(site.scratch),
        "--object-store-memory", str(OBJECT_STORE_BYTES),
        "--disable-usage-stats", "--log-color", "false",
    ]  # fmt: skip
    environment = {**site.environment, **site.exports}
    del environment["RAY_ADDRESS"], environment["RAY_API_SERVER_ADDRESS"]  # it is that address
    return Service(
        HOST,
        tuple(command),
        environment,
        site.url("ray-dashboard"),
        ("ray", "ray-dashboard", "ray-client", "ray-agent"),
        lambda: _get(f"{site.url('ray-dashboard')}/api/gcs_healthz"),
    )


def _mlflow(site: Site) -> Service:
    store = site.root / "mlflow"
    command = [
        *_module("mlflow"), "server", "--host", LOOPBACK, "--port", str(site.ports["mlflow"]),
        "--backend-store-uri", store_uri(site.root),
        "--artifacts-destination", str(store / "artifacts"),
        "--workers", "1",
    ]  # fmt: skip
    without_jobs = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # eight processes, for nothing
    return Service(
        "mlflow",
        tuple(command),
        {**site.environment, **without_jobs},
        site.url("mlflow"),
        ("mlflow",),
        lambda: _get(f"{site.url('mlflow')}/health"),
    )


def store_uri(root: Path) -> str:
    """MLflow's store of a root: the one that runs without a server write to."""
    return f"sqlite:///{root / 'mlflow' / 'mlflow.db'}"


def _prefect(site: Site) -> Service:
    command = [
        *_module("prefect"), "--no-prompt", "server", "start",
        "--host", LOOPBACK, "--port", str(site.ports["prefect"]),
    ]  # fmt: skip
    return Service(
        "prefect",
        tuple(command),
        prefect_environment(site),
        site.url("prefect"),
        ("prefect",),
        lambda: _get(f"{site.url('prefect')}/api/health"),
    )


def prefect_environment(site: Site) -> dict[str, str]:
    """For Prefect's processes: a home of their own, so that the user's profile has no part in it."""
    return {**site.environment, **site.exports, "PREFECT_HOME": str(site.folder / "prefect-home")}


def _worker(site: Site) -> Service:
    name = f"{POOL}-{site.ports['prefect']}"
    command = [
        *_module("prefect"), "--no-prompt", "worker", "start",
        "--pool", POOL, "--type", "process", "--name", name,
    ]  # fmt: skip
    workers = f"{site.url('prefect')}/api/work_pools/{POOL}/workers/filter"
    return Service(
        "worker",
        tuple(command),
        {**prefect_environment(site), "PREFECT_WORKER_HEARTBEAT_SECONDS": "10"},
        f"work pool {POOL} of {site.url('prefect')}",
        (),
        lambda: _check_online(workers, name),
        needs=("prefect",),
    )


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]


def _get(url: str) -> None:
    httpx.get(url, timeout=HEALTH_TIMEOUT_S, trust_env=False).raise_for_status()


def _check_online(url: str, name: str) -> None:
    """A worker answers no requests: its server says whether it has heard of it lately."""
    answer = httpx.post(url, json={}, timeout=HEALTH_TIMEOUT_S, trust_env=False)
    answer.raise_for_status()
    if not any(each["name"] == name and each["status"] == "ONLINE" for each in answer.json()):
        raise httpx.HTTPError(f"the server has not heard of {name} lately")
