"""Prefect's temporary server, for a run where none is set: it lives and dies with this process.

Prefect would start one too, but leaves it behind when the run is killed, and Ctrl-C at a terminal
ends it before the run could report.
"""

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import IO

import httpx

from pipeline.errors import TradukoError

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 5.0
LOOK_EVERY_S = 0.1
PR_SET_PDEATHSIG = 1


def start() -> str:
    """Start a server on this machine alone, to end with this process; its API's address.

    Call it in the main thread: the kernel ends the server with the thread that started it.

    Raises:
        TradukoError: If it does not answer in time.
    """
    with socket.socket() as place, tempfile.TemporaryFile() as log:
        place.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{place.getsockname()[1]}/api"
        server = subprocess.Popen(  # noqa: S603 - this module
            [sys.executable, "-m", "flows.temporary_server", str(place.fileno()), str(os.getpid())],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            pass_fds=[place.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C at a terminal is not for it
        )
        # Registered before Prefect's own senders exist, it is called after them: they have sent all.
        atexit.register(_stop, server)
        place.close()
        _await(server, url, log)
    return url


def _await(server: "subprocess.Popen[bytes]", url: str, log: IO[bytes]) -> None:
    for _ in range(int(START_TIMEOUT_S / LOOK_EVERY_S)):
        if server.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=LOOK_EVERY_S * 20).is_success:
                return
        time.sleep(LOOK_EVERY_S)
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()
    raise TradukoError(
        f"Prefect's temporary server did not start: {said[-1] if said else 'it said nothing'}. "
        "Run with a server of your own (prefect server start) and PREFECT_API_URL."
    )


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _die_with(parent: int) -> None:
    """Have the kernel end this process when the one that started it is gone, however it ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before that
        sys.exit()


def _serve(descriptor: int) -> None:
    import uvicorn  # noqa: PLC0415 - in the server's process alone
    from prefect.server.api.server import create_app  # noqa: PLC0415 - likewise

    app = create_app(ephemeral=True, final=True)
    config = uvicorn.Config(app, log_level="error", lifespan="on")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    _die_with(int(sys.argv[2]))
    _serve(int(sys.argv[1]))
