"""SIGKILL of a download at random times: it ends with the right bytes, and few of them twice."""

import hashlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

NUM_BYTES = 200 * 2**20
BLOCK_BYTES = 2**16
BYTES_PER_S = 25 * 2**20
KILLS = 10
PROGRAM = """
import sys
from pathlib import Path
from pipeline.fetching.fetch import fetch
print(fetch(sys.argv[1], Path(sys.argv[2])).sha256)
"""


def body(start, stop):
    """The numbers 0, 1, 2, …, eight bytes each: any part of 200 MiB without storing them."""
    numbers = np.arange(start // 8, -(-stop // 8), dtype="<u8").tobytes()
    return numbers[start % 8 : start % 8 + stop - start]


class Slow(BaseHTTPRequestHandler):
    """Sends the body from where it is asked for, no faster than a good line would."""

    def setup(self):
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BLOCK_BYTES)
        super().setup()

    def do_GET(self):
        start = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            assert self.headers["If-Range"] == '"numbers"'
            start = int(wanted[1])
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", '"numbers"')
        self.send_header("Content-Length", str(NUM_BYTES - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{NUM_BYTES - 1}/{NUM_BYTES}")
        self.end_headers()
        self.server.answers.append(start)
        self.send(start)

    def send(self, start):
        began = time.perf_counter()
        for at in range(start, NUM_BYTES, BLOCK_BYTES):
            block = body(at, min(at + BLOCK_BYTES, NUM_BYTES))
            self.wfile.write(block)
            self.server.sent += len(block)
            ahead_s = (at - start) / BYTES_PER_S - (time.perf_counter() - began)
            time.sleep(max(0.0, ahead_s))

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.sent, server.answers = 0, []
    server.handle_error = lambda *_: None  # a client that is killed is what this is about
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_download_killed_ten_times_ends_right_with_few_bytes_sent_twice(server, tmp_path):
    target = tmp_path / "numbers"
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        f"http://127.0.0.1:{server.server_port}/",
        str(target),
    ]
    root = Path(__file__).parents[2]
    generator = random.Random(1)
    for kill in range(KILLS):
        process = subprocess.Popen(command, cwd=root)
        while len(server.answers) <= kill:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.7))
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert not target.exists()
    done = subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=120)
    assert server.answers == sorted(server.answers)
    assert server.answers[-1] > NUM_BYTES / 10, "the kills came while it was under way"
    assert target.read_bytes() == body(0, NUM_BYTES)
    assert done.stdout.decode().strip() == hashlib.sha256(target.read_bytes()).hexdigest()
    assert [path.name for path in tmp_path.iterdir()] == ["numbers"]
    assert server.sent <= 1.2 * NUM_BYTES
