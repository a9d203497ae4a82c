"""What the tests of this folder share: data, an undisturbed run, processes, a Ray cluster."""

import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from pipeline.events import EVENTS_FILE, read_events
from tests.system.chaos.gloo import forkserver
from tests.system.chaos.ray_driver import INTERRUPTED, KILLED
from tests.system.chaos.training import Alone, Place, attempt, make_tokens, result, trained

NODE = {"object_store_memory": 100 << 20}


@pytest.fixture(scope="session")
def processes():
    return forkserver()


@pytest.fixture(scope="session")
def tokens_root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="session")
def tokens(tokens_root):
    return make_tokens(tokens_root)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, tokens):
    """What one worker gives: files and events, and what it was trained on."""
    place = Place(tmp_path_factory.mktemp("undisturbed")).make()
    return result(place, attempt(place, tokens, Alone())), trained(place)


@pytest.fixture
def cluster():
    """A Ray cluster whose head runs no workers."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, **NODE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()
    del cluster
    with warnings.catch_warnings():  # Ray leaves sockets open that looked for free ports
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def start_driver(tokens, tokens_root, cluster):
    """Starts the driver of a place on the cluster, as a process."""

    def start(place, num_workers):
        command = [sys.executable, "-m", "tests.system.chaos.ray_driver"]
        arguments = [cluster.address, place.folder, tokens_root, num_workers]
        return subprocess.Popen(
            [*command, *map(str, arguments)],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "30"},
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture
def drive(cluster, start_driver):
    """Runs the same command until it is not ended from outside; gives the exit codes."""
    cluster.add_node(num_cpus=2, **NODE)

    def run(place):
        codes = []
        while not codes or codes[-1] in (INTERRUPTED, KILLED):
            driver = start_driver(place, 2)
            _, told = driver.communicate(timeout=400)
            codes.append(driver.returncode)
            if codes[-1] == INTERRUPTED:
                assert_saved_where_it_stopped(place)
        assert codes[-1] == 0, told
        return codes

    return run


def assert_saved_where_it_stopped(place):
    saved, stopped = read_events(place.work / EVENTS_FILE)[-2:]
    assert (saved["kind"], stopped["kind"]) == ("checkpoint", "stopped")
    assert saved["step"] == stopped["step"]
