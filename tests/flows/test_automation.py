"""What `traduko up` tells Prefect: a run without heartbeat has crashed. tests/system shows it."""

import json
from http.server import BaseHTTPRequestHandler

import pytest

from flows import automation
from flows.automation import crash_zombies
from pipeline.errors import TradukoError
from tests.servers import serving


class Automations(BaseHTTPRequestHandler):
    """Prefect's server as far as automations go; busy for the first `num_busy` requests."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.command, self.path, body))
        if self.server.num_busy:
            self.server.num_busy -= 1
            self._answer(503, {})
        elif self.path.endswith("/filter"):
            self._answer(200, self.server.found)
        else:
            self._answer(self.server.status, {})

    def do_PUT(self):
        self.do_POST()

    def _answer(self, status, value):
        self.send_response(status)
        self.end_headers()
        if status != 204:
            self.wfile.write(json.dumps(value).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def prefect(monkeypatch):
    monkeypatch.setattr(automation, "PAUSE_S", 0.0)
    with serving(Automations, num_busy=0, found=[], status=201) as server:
        yield server


def test_the_automation_is_made_once(prefect):
    crash_zombies(f"{prefect.site}/api")
    assert [asked[:2] for asked in prefect.asked][1:] == [("POST", "/api/automations/")]
    made = prefect.asked[-1][2]
    assert made["trigger"]["within"] == 90
    assert made["actions"][0]["state"] == "CRASHED"
    prefect.found, prefect.status = [{"id": "7"}], 204
    crash_zombies(f"{prefect.site}/api")
    assert prefect.asked[-1][:2] == ("PUT", "/api/automations/7")


def test_a_busy_server_is_asked_again(prefect):
    prefect.num_busy = 2
    crash_zombies(f"{prefect.site}/api")
    assert len(prefect.asked) == 4


def test_a_refusal_is_told(prefect):
    prefect.status = 422
    with pytest.raises(TradukoError, match="but answers 422"):
        crash_zombies(f"{prefect.site}/api")
