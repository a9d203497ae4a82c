"""Prefect's temporary server lives as long as the process that started it, and no longer."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from pipeline.errors import TradukoError

STARTS_ONE = """
import sys, time
from flows.temporary_server import start
import httpx
url = start()
assert httpx.get(url + "/health").is_success
print(url, flush=True)
if sys.argv[1] == "stay":
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("prefect")


def starting(then, home):
    environment = {**os.environ, "PREFECT_HOME": str(home)}
    environment.pop("PREFECT_API_URL", None)
    return subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE, then],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("end", ["kill", "leave"])
def test_the_server_is_gone_with_its_process(end, home):
    with starting("stay" if end == "kill" else "go", home) as process:
        watched = psutil.Process(process.pid)
        servers = []
        for _ in range(600):
            servers = watched.children(recursive=True)
            if servers or process.poll() is not None:
                break
        assert process.stdout.readline().startswith("http://127.0.0.1:"), process.stderr.read()
        assert servers, "it starts one process"
        if end == "kill":
            process.send_signal(signal.SIGKILL)
        process.wait(60)
        _, alive = psutil.wait_procs(servers, timeout=30)
        assert not alive
        if end == "leave":
            assert process.stderr.read() == ""


def test_a_server_that_cannot_start_says_why(monkeypatch):
    from flows import temporary_server

    monkeypatch.setattr(temporary_server.sys, "executable", "/bin/false")
    with pytest.raises(
        TradukoError, match=r"temporary server did not start: it said nothing\. Run"
    ):
        temporary_server.start()
