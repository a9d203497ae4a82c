"""What is said when a cluster does not answer, does not let us in, or goes."""

import json
import platform
import subprocess
import sys
import threading
import time

import grpc
import pytest

from tests.servers import Bodies, serving
from tests.system.cluster.head import ray_head, without_ray

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

JOIN = """
import json, sys
from pathlib import Path
from flows.cluster import Cluster
from pipeline.errors import TradukoError
try:
    with Cluster(sys.argv[1]) as cluster:
        cluster.connect()
        cluster.check_root(Path(sys.argv[2]))
        {then}
    print(json.dumps("joined"))
except TradukoError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.fixture
def join(tmp_path):
    """Joins a cluster in a process of its own, whose home holds no token; what came of it."""

    def join(address, then="", **environment):
        done = subprocess.run(
            [sys.executable, "-c", JOIN.format(then=then), address, str(tmp_path / "root")],
            env=without_ray() | {"HOME": str(tmp_path)} | environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return join


def test_the_right_token_lets_in_also_where_the_mode_is_not_set(head, join, tmp_path):
    assert join(head.address, **head.token) == "joined"
    assert join(head.address, RAY_AUTH_TOKEN_PATH=str(head.token_file)) == "joined"
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(head.token_file.read_text())
    assert join(head.address) == "joined"
    assert not list((tmp_path / "root" / "work").iterdir()), "the probe cleans up"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "asks for a token, and none is given."),
        ({"RAY_AUTH_TOKEN": "wrong"}, "refuses the token from RAY_AUTH_TOKEN."),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "wrong"}, "refuses the token from RAY_AUTH_"),
        ({"RAY_AUTH_MODE": "disabled"}, "asks for a token, and RAY_AUTH_MODE is disabled."),
        ({"RAY_AUTH_TOKEN_PATH": "/no/file"}, "asks for a token, and /no/file holds none."),
    ],
)
def test_a_missing_or_wrong_token_is_said_with_what_to_set(head, join, environment, words):
    kind, message = join(head.address, **environment)
    assert kind == "TradukoError"
    assert words in message
    assert "Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("address", "kind", "words"),
    [
        ("127.0.0.1:9", "TradukoError", "(Connection refused). Check the address"),
        ("no.such.host.invalid:6379", "TradukoError", "No Ray cluster answers at no.such.host."),
        ("http://127.0.0.1:8265", "ConfigError", "address use `traduko submit`"),
        ("cluster", "ConfigError", "`--ray` must be auto or HOST:PORT, but is cluster."),
    ],
)
def test_an_address_where_no_cluster_is_is_told_at_once(join, address, kind, words):
    found, message = join(address)
    assert found == kind
    assert words in message
    assert "\n" not in message


def test_something_else_that_answers_is_told_from_ray(join):
    with serving(Bodies, bodies={}) as server:
        kind, message = join(server.site.removeprefix("http://"))
    assert kind == "TradukoError"
    assert message.startswith("No Ray cluster answers at ")


def test_another_version_is_told_with_both(head, join):
    note_versions(head, ray="2.50.0", python="3.12.1")
    try:
        kind, message = join(head.address, **head.token)
    finally:
        note_versions(head, ray=ray_version(), python=platform.python_version())
    assert kind == "TradukoError"
    assert "has Ray 2.50.0 and Python 3.12.1, but here is Ray " in message
    assert "`traduko submit`" in message
    assert join(head.address, **head.token) == "joined"


def note_versions(head, ray, python):
    """Change what a cluster says of itself: only one version of Ray is installed here."""
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

    note = gcs_service_pb2.InternalKVPutRequest(
        key=b"CLUSTER_METADATA",
        namespace=b"cluster",
        value=json.dumps({"ray_version": ray, "python_version": python}).encode(),
        overwrite=True,
    )
    header = (("authorization", f"Bearer {head.token_file.read_text()}"),)
    with grpc.insecure_channel(head.address) as channel:
        store = gcs_service_pb2_grpc.InternalKVGcsServiceStub(channel)
        store.InternalKVPut(note, metadata=header, timeout=10)


def ray_version():
    import ray

    return ray.__version__


WORK = """
        import flows.cluster
        from pipeline.ray_compute import RayCompute
        flows.cluster.LOST_AFTER_S = 6
        def sleep(_):
            import time
            time.sleep(100)
        Path(sys.argv[2], "begun").touch()
        RayCompute(cluster.connect).map(sleep, range(2))
"""


@pytest.mark.long
def test_a_cluster_that_goes_in_the_middle_ends_the_run_with_one_line(join, tmp_path):
    with ray_head() as mine:

        def kill_once_begun():
            while not (tmp_path / "root" / "begun").exists():
                time.sleep(0.1)
            time.sleep(3)
            mine.kill()

        killer = threading.Thread(target=kill_once_begun, daemon=True)
        killer.start()
        kind, message = join(mine.address, then=WORK.strip(), **mine.token)
        killer.join()
    assert kind == "TradukoError"
    assert "has not answered for 6 s. What is finished is kept" in message
