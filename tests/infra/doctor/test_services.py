"""Checks of services, against small real servers that answer as theirs do."""

import importlib.metadata
import json
from http.server import BaseHTTPRequestHandler

import pytest

from infra.doctor.services import mlflow_store, prefect_api, ray_cluster, token
from infra.stack.ports import free_port
from tests.servers import serving

RAY = importlib.metadata.version("ray")


class Answers(BaseHTTPRequestHandler):
    """A Ray dashboard with a token, an MLflow and a Prefect."""

    def do_GET(self):
        is_ray = self.path == "/api/version"
        refuses = is_ray and self.headers.get("Authorization") != "Bearer right"
        self.send_response(401 if refuses else self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps({"ray_version": self.server.version}).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with serving(Answers, version=RAY, status=200) as server:
        yield server


@pytest.fixture
def nobody():
    return f"127.0.0.1:{free_port(())}"


def ray_environment(server, given="right"):
    return {
        "RAY_ADDRESS": "127.0.0.1:1",
        "RAY_API_SERVER_ADDRESS": server.site,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": given,
    }


@pytest.mark.parametrize("check", [ray_cluster, mlflow_store, prefect_api])
def test_what_is_not_set_is_well(check):
    assert check({}).verdict == "ok"
    assert check({}).advice == ""


def test_a_cluster_of_our_version_that_takes_the_token_is_well(server):
    found = ray_cluster(ray_environment(server))
    assert (found.verdict, found.found) == ("ok", f"{server.site}, Ray {RAY}")


def test_a_wrong_token_is_told(server):
    found = ray_cluster(ray_environment(server, "wrong"))
    assert found.verdict == "mend"
    assert "refuses this token" in found.found
    assert "RAY_AUTH_TOKEN_PATH" in found.advice


def test_a_missing_token_is_told(server):
    environment = ray_environment(server)
    del environment["RAY_AUTH_MODE"]
    found = ray_cluster(environment)
    assert "it asks for a token" in found.found
    assert "RAY_AUTH_MODE=token" in found.advice


def test_a_cluster_of_another_version_is_told_with_both(server):
    server.version = "2.1.0"
    found = ray_cluster(ray_environment(server))
    assert found.verdict == "mend"
    assert "2.1.0" in found.found
    assert RAY in found.found
    assert "==2.1.0" in found.advice


def test_a_dashboard_that_is_none_is_told(server):
    server.status = 404
    assert "does not answer as Ray does" in ray_cluster(ray_environment(server)).found


def test_a_head_that_is_not_there_is_told_at_once(nobody):
    found = ray_cluster({"RAY_ADDRESS": nobody})
    assert found.verdict == "mend"
    assert "refused" in found.found


def test_tokens_come_from_the_variable_or_the_file(tmp_path):
    path = tmp_path / "token"
    path.write_text("from the file\n")
    mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}
    assert token(mode) == "from the file"
    assert token({**mode, "RAY_AUTH_TOKEN": "given"}) == "given"
    assert token({**mode, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}) == ""
    assert token({**mode, "RAY_AUTH_MODE": "disabled"}) == ""


def test_servers_that_answer_are_well(server):
    assert mlflow_store({"MLFLOW_TRACKING_URI": server.site}).verdict == "ok"
    assert prefect_api({"PREFECT_API_URL": f"{server.site}/api"}).verdict == "ok"


def test_servers_that_do_not_answer_are_told_with_what_to_do(nobody):
    mlflow = mlflow_store({"MLFLOW_TRACKING_URI": f"http://{nobody}"})
    prefect = prefect_api({"PREFECT_API_URL": f"http://{nobody}/api"})
    for found, variable in ((mlflow, "MLFLOW_TRACKING_URI"), (prefect, "PREFECT_API_URL")):
        assert found.verdict == "mend"
        assert nobody in found.found
        assert f"unset {variable}" in found.advice


def test_a_database_that_is_not_there_is_told_without_its_password(nobody):
    found = mlflow_store({"MLFLOW_TRACKING_URI": f"postgresql://me:hunter2@{nobody}/runs"})
    assert found.verdict == "mend"
    assert "hunter2" not in found.found


def test_a_file_store_needs_a_folder_that_can_be_written(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert mlflow_store({"MLFLOW_TRACKING_URI": uri}).verdict == "ok"
    nowhere = "sqlite:////nowhere/mlflow.db"
    assert mlflow_store({"MLFLOW_TRACKING_URI": nowhere}).verdict == "mend"
