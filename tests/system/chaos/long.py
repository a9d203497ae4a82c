"""More of the same, for minutes: `make chaos`. The name keeps it out of `make test`."""

import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.events import EVENTS_FILE, read_events
from tests.system.chaos.commit_points import kill_at_each_operation
from tests.system.chaos.conftest import NODE
from tests.system.chaos.gloo import Gloo
from tests.system.chaos.ray_driver import out_of
from tests.system.chaos.training import (
    Disturbance,
    Place,
    draw,
    result,
    run_to_end,
    sizes,
    trained,
)

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("seed", range(2, 5))
def test_twenty_disturbances_do_not_show(
    tmp_path, tokens, processes, undisturbed, seed, num_workers
):
    disturbances = draw(random.Random(seed), ["worker", "all", "driver", "stop"])
    place = Place(tmp_path).make(disturbances)
    numbers = [num_workers, 1, 4, 2] * 10
    out = run_to_end(place, tokens, Gloo(processes, place), numbers)
    assert (result(place, out), trained(place)) == undisturbed
    assert place.happened() == disturbances


def test_a_run_from_a_damaged_checkpoint_may_be_killed_at_any_operation(
    tmp_path, tokens, processes
):
    kill_at_each_operation(tmp_path, tokens, processes, damaged=True)


def test_twenty_disturbances_on_ray_do_not_show(drive, tmp_path, undisturbed):
    drawn = draw(random.Random(11), ["worker", "driver", "SIGINT", "SIGTERM"])
    disturbances = [replace(disturbance, slow_s=0.5) for disturbance in drawn]
    place = Place(tmp_path).make(disturbances)
    drive(place)
    assert (result(place, out_of(place)), trained(place)) == undisturbed
    assert place.happened() == disturbances


def test_machines_that_come_and_go_do_not_show(cluster, start_driver, tmp_path, undisturbed):
    cluster.add_node(num_cpus=1, **NODE)
    place = Place(tmp_path).make([Disturbance(5, "slow", slow_s=1.0)] * 2)
    driver = start_driver(place, "[1, 2]")
    wait_for_step(place, 6, size=1)
    second = cluster.add_node(num_cpus=1, **NODE)
    step = wait_for_step(place, 7, size=2)
    wait_for_step(place, step + 7, size=2)
    cluster.remove_node(second, allow_graceful=False)
    _, told = driver.communicate(timeout=300)
    assert driver.returncode == 0, told
    assert (result(place, out_of(place)), trained(place)) == undisturbed
    assert sizes(place)[82] == {1}


def test_a_notice_that_a_machine_goes_saves_what_there_is(
    cluster, start_driver, tmp_path, undisturbed
):
    cluster.add_node(num_cpus=1, **NODE)
    leaving = cluster.add_node(num_cpus=1, **NODE)
    place = Place(tmp_path).make([Disturbance(5, "slow", slow_s=1.0)])
    driver = start_driver(place, "[1, 2]")
    wait_for_step(place, 6, size=2)
    notify(cluster, leaving)
    saved = wait_for_checkpoint(place, {21, 42, 63})
    cluster.remove_node(leaving, allow_graceful=False)
    _, told = driver.communicate(timeout=300)
    assert driver.returncode == 0, told
    resumed = [event["step"] for event in events_of(place) if event["kind"] == "resumed"]
    assert resumed[0] >= saved
    assert (result(place, out_of(place)), trained(place)) == undisturbed


def notify(cluster, node):
    """Tell Ray that a machine is about to be taken away."""
    subprocess.run(
        [
            *(Path(sys.executable).parent / "ray", "drain-node", "--address", cluster.address),
            *("--node-id", node.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION"),
            *("--reason-message", "test", "--deadline-remaining-seconds", "120"),
        ],
        check=True,
    )


def wait_for_checkpoint(place, steps):
    """Wait for a checkpoint at one of these steps; say which."""
    for _ in range(600):
        for event in events_of(place):
            if event["kind"] == "checkpoint" and event["step"] in steps:
                return event["step"]
        time.sleep(0.2)
    raise AssertionError("nothing was saved")


def events_of(place):
    return read_events(place.work / EVENTS_FILE)


def wait_for_step(place, least, size):
    """Wait until so many workers take a step from `least` on; say which."""
    for _ in range(900):
        steps = [step for step, found in sizes(place).items() if step >= least and size in found]
        if steps:
            return max(steps)
        time.sleep(0.2)
    raise AssertionError(f"step {least} was not taken by {size} workers")
