"""The stack's commands without its services: tests/system/test_stack.py starts them."""

import json
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from flows import stack
from flows.cli import main
from flows.stack import crash_silent_runs
from pipeline.errors import TradukoError
from tests.servers import serving


@pytest.fixture
def root(tmp_path, monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "MLFLOW_TRACKING_URI", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRADUKO_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_the_deployments_come_with_the_package():
    assert "name: traduko" in stack.DEPLOYMENTS.read_text()


def test_status_of_a_root_without_a_stack(root, capsys):
    assert main(["status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["service"]: each["status"] for each in found["services"]} == dict.fromkeys(
        stack.SERVICES, "stopped"
    )
    assert not root.exists()


def test_down_without_a_stack_is_harmless(root, capsys):
    assert main(["down"]) == 0
    assert capsys.readouterr().err == "Nothing runs.\n"
    assert not root.exists()


@pytest.mark.parametrize("port", ["web=5", "ray=http"])
def test_up_refuses_a_wrong_port_before_anything_starts(root, capsys, port):
    assert main(["up", "--port", port]) == 2
    assert "must read NAME=PORT" in capsys.readouterr().err
    assert not root.exists()


def test_logs_shows_the_last_lines(root, capsys):
    log = root / "stack" / "logs" / "ray.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\nthree\n")
    assert main(["logs", "ray", "-n", "2"]) == 0
    assert capsys.readouterr().out == "two\nthree\n"


def test_logs_follows_until_the_service_is_started_again(root, capsys):
    log = root / "stack" / "logs" / "ray.log"
    log.parent.mkdir(parents=True)
    log.write_text("one\n")
    thread = threading.Thread(target=main, args=(["logs", "ray", "-f"],))
    thread.start()
    with log.open("a") as file:
        file.write("two\n")
    new = log.with_suffix(".new")
    new.write_text("another start\n")
    thread.join(2)
    assert thread.is_alive()
    new.replace(log)
    thread.join(30)
    captured = capsys.readouterr()
    assert captured.out == "one\ntwo\n"
    assert "ray was started again" in captured.err


def test_logs_of_a_service_that_never_ran_says_what_to_do(root, capsys):
    assert main(["logs", "worker"]) == 2
    assert "`traduko up` first" in capsys.readouterr().err


def test_doctor_says_what_must_be_mended_and_exits_with_1(root, monkeypatch, capsys):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    assert ended.value.code == 1
    checks = {each["check"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["prefect"]["verdict"] == "mend"
    assert "traduko up" in checks["prefect"]["advice"]
    assert checks["python"]["verdict"] == "ok"
    assert not root.exists()


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
    monkeypatch.setattr(stack, "PAUSE_S", 0.0)
    with serving(Automations, num_busy=0, found=[], status=201) as server:
        yield server


def test_the_automation_is_made_once(prefect):
    crash_silent_runs(f"{prefect.site}/api")
    assert [asked[:2] for asked in prefect.asked][1:] == [("POST", "/api/automations/")]
    made = prefect.asked[-1][2]
    assert made["trigger"]["within"] == 90
    assert made["actions"][0]["state"] == "CRASHED"
    prefect.found, prefect.status = [{"id": "7"}], 204
    crash_silent_runs(f"{prefect.site}/api")
    assert prefect.asked[-1][:2] == ("PUT", "/api/automations/7")


def test_a_busy_server_is_asked_again(prefect):
    prefect.num_busy = 2
    crash_silent_runs(f"{prefect.site}/api")
    assert len(prefect.asked) == 4


def test_a_refusal_is_told(prefect):
    prefect.status = 422
    with pytest.raises(TradukoError, match="but answers 422"):
        crash_silent_runs(f"{prefect.site}/api")
