"""A Ray head of its own: ports, token, folder; ended with all that it started."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

RAY = str(Path(sys.executable).parent / "ray")
OBJECT_STORE_BYTES = 100 << 20


@dataclass
class Head:
    process: subprocess.Popen
    address: str
    """HOST:PORT, as drivers join it."""
    dashboard: str
    """Address of its HTTP API."""
    token_file: Path

    @property
    def token(self):
        """Environment of one who may use it."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token_file)}

    def kill(self):
        """As a power cut: nothing is told."""
        end(self.process)


@contextlib.contextmanager
def ray_head(num_cpus=2):
    """A head that asks for a token, with two CPUs to share out."""
    folder = Path(tempfile.mkdtemp(prefix="tr", dir="/tmp"))  # Ray's sockets need a short path
    token_file = folder / "token"
    token_file.write_text("ab" * 32)
    port, dashboard, client, agent = free_ports(4)
    command = [
        RAY, "start", "--head", "--block", "--disable-usage-stats",
        f"--port={port}", "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}",
        f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}",
        "--min-worker-port=0", "--max-worker-port=0",
        f"--num-cpus={num_cpus}", f"--object-store-memory={OBJECT_STORE_BYTES}",
        f"--temp-dir={folder / 'r'}",
    ]  # fmt: skip
    home = folder / "home"
    home.mkdir()
    environment = without_ray() | {
        "HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file),
    }  # fmt: skip
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        head = Head(process, f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}", token_file)
        wait_until_jobs_are_taken(head, log)
        yield head
    finally:
        end(process)
        shutil.rmtree(folder, ignore_errors=True)


def without_ray():
    """This environment, as that of one who has no cluster and no token."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


def wait_until_jobs_are_taken(head, log):
    header = {"authorization": f"Bearer {head.token_file.read_text()}"}
    for _ in range(240):
        with contextlib.suppress(httpx.HTTPError):
            jobs = httpx.get(f"{head.dashboard}/api/jobs/", headers=header, timeout=5)
            if jobs.is_success:
                return
        assert head.process.poll() is None, log.read_text()
        time.sleep(0.5)
    raise AssertionError(log.read_text())


def end(process, patience_s=15):
    """Kill a process and all that it started."""
    try:
        started = psutil.Process(process.pid)
        family = [started, *started.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait(patience_s)
    psutil.wait_procs(family, timeout=patience_s)


def free_ports(number):
    """So many different ports that are free now."""
    with contextlib.ExitStack() as listeners:
        sockets = [listeners.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
