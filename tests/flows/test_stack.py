"""The stack's commands without its services: tests/system/test_stack.py starts them."""

import json
import threading

import pytest

from flows import stack
from flows.cli import main


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
