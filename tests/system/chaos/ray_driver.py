"""Runs the stage on a Ray cluster, as one process that can be killed.

    python -m tests.system.chaos.ray_driver ADDRESS PLACE TOKENS NUM_WORKERS

NUM_WORKERS is JSON. Where the result is it leaves in the place's notes.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pipeline.ray_train
from flows.cluster import Cluster
from pipeline.ray_compute import RayCompute
from tests.system.chaos.training import Place, attempt, make_tokens, work

INTERRUPTED, KILLED = 130, -9
RESIZE_EVERY_S = 4
"""In place of the pipeline's twenty seconds, which a test would have to wait."""


def out_of(place):
    """The folder that the driver filled."""
    return Path((place.notes / "out").read_text())


def work_on_ray(task, is_leaving):
    """Ask whether the machine goes at steps where no checkpoint is due."""
    pipeline.ray_train.ASK_EVERY_STEPS = 21
    work(task, is_leaving)


class Disturbed(RayCompute):
    """Runs the tests' worker in place of the stage's own."""

    def train(self, worker, task, group):
        super().train(work_on_ray, task, group)


def drive(address, folder, root, num_workers):
    place = Place(folder)
    (place.notes / "driver").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pipeline.ray_train.RESIZE_EVERY_S = RESIZE_EVERY_S
    with Cluster(address) as cluster:
        compute = Disturbed(cluster.connect)
        out = attempt(place, make_tokens(Path(root)), compute, json.loads(num_workers))
    (place.notes / "out").write_text(str(out))


if __name__ == "__main__":
    try:
        drive(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
