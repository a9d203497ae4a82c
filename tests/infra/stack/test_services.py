"""How the services are started: on this machine's own address, without reporting, with a token."""

from pathlib import Path

import pytest

from infra.stack.services import PORTS, Site, is_job, make_token, services, store_uri


@pytest.fixture
def site(tmp_path):
    root = tmp_path / "root"
    quiet = {"DO_NOT_TRACK": "1", "RAY_ADDRESS": "elsewhere:1"}
    return Site(root, root / "stack", dict(PORTS), tmp_path / "scratch", quiet)


def test_what_others_need_comes_first(site):
    started: set[str] = set()
    for service in services(site):
        assert started.issuperset(service.needs)
        started.add(service.name)
    assert started == {"ray", "mlflow", "prefect", "worker"}


def test_every_port_belongs_to_one_service(site):
    assert sorted(port for service in services(site) for port in service.ports) == sorted(PORTS)


def test_all_inherit_what_turns_reporting_off(site):
    assert all(service.environment["DO_NOT_TRACK"] == "1" for service in services(site))


def test_no_command_listens_on_every_address(site):
    for service in services(site):
        assert "0.0.0.0" not in service.command
        for flag in ("--host", "--dashboard-host"):
            if flag in service.command:
                assert service.command[service.command.index(flag) + 1] == "127.0.0.1"


def test_the_head_joins_no_cluster_and_asks_for_the_token(site):
    ray = services(site)[0]
    assert "RAY_ADDRESS" not in ray.environment
    assert ray.environment["RAY_AUTH_MODE"] == "token"
    assert ray.environment["RAY_AUTH_TOKEN_PATH"] == str(site.token_file)


def test_the_worker_finds_all_the_others(site):
    worker = services(site)[-1]
    assert worker.environment["RAY_ADDRESS"] == "127.0.0.1:6379"
    assert worker.environment["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    assert worker.environment["TRADUKO_ROOT"] == str(site.root)
    assert Path(worker.environment["PREFECT_HOME"]).is_relative_to(site.folder)


def test_mlflow_serves_the_roots_own_store(site):
    mlflow = services(site)[1]
    assert store_uri(site.root) == f"sqlite:///{site.root}/mlflow/mlflow.db"
    assert store_uri(site.root) in mlflow.command


def test_the_token_is_this_users_alone_and_stays(tmp_path):
    path = tmp_path / "token"
    make_token(path)
    token = path.read_text()
    assert len(token) == 64
    assert path.stat().st_mode & 0o077 == 0
    make_token(path)
    assert path.read_text() == token


@pytest.mark.parametrize(
    ("command_line", "expected"),
    [
        ("ray::_StatsActor", False),
        ("ray::JobSupervisor", False),
        ("ray-dashboard-JobHead-0 (/venv/bin/python -B -c ...", False),
        ("/venv/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet --node_id=7", False),
        (
            "/venv/bin/python3 -u /venv/lib/python3.11/site-packages/ray/dashboard/dashboard.py",
            False,
        ),
        ("/venv/bin/python3 -m ray.scripts.scripts start --head", False),
        ("python3 -B -c from multiprocessing.forkserver import main; main(25)", False),
        ("python3 -B -c from multiprocessing.resource_tracker import main;main(25)", False),
        ("/venv/bin/python3 -m flows.cli run quickstart --ray auto", True),
        ("/bin/sh -c traduko run my.toml --ray auto", True),
        ("python train_something.py", True),
    ],
)
def test_a_job_is_no_part_of_ray(command_line, expected):
    assert is_job(command_line) == expected
