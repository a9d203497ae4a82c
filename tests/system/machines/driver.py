"""Runs the recipe without Prefect and MLflow, and notes on which machine each piece of work is done.

    python -m tests.system.machines.driver ROOT NOTES [ADDRESS NUM_WORKERS]

Without an address it runs in this process alone. While NOTES/slow is there, training goes slowly.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from flows.cluster import Cluster, make_ready
from flows.run import Workplace, document, make_run
from pipeline.compute import InProcess
from pipeline.ray_compute import RayCompute
from tests.system.machines.namespaces import MACHINE

RECIPE = str(Path(__file__).parent / "spread.toml")


class Display:
    """Knows which stage is at work."""

    stage = ""

    def say(self, line):
        print(line, file=sys.stderr)

    def begin(self, name):
        Display.stage = name.partition(":")[0]

    def end(self):
        pass

    def progress(self, done, total, unit, note=""):
        pass

    def beside(self, name):
        return contextlib.nullcontext(self.progress)


def note(folder, stage):
    """This machine has worked for a stage."""
    Path(folder, f"{stage}@{os.environ[MACHINE]}").touch()


class Noted:
    """A table function that says where it runs."""

    def __init__(self, function, folder):
        self.function, self.folder, self.stage = function, folder, Display.stage

    def __call__(self, item):
        note(self.folder, self.stage)
        return self.function(item)


class Slow:
    """A training worker that says where it runs, and takes its time."""

    def __init__(self, worker, folder):
        self.worker, self.folder = worker, folder

    def __call__(self, task, is_leaving):
        note(self.folder, "train")
        slow = Path(self.folder, "slow")

        def asked():
            if slow.exists():
                time.sleep(0.5)
            return is_leaving()

        self.worker(task, asked)


class Noting(RayCompute):
    def __init__(self, connect, folder):
        super().__init__(connect)
        self.folder = folder

    def map(self, function, items, on_done=None, **options):
        return super().map(Noted(function, self.folder), items, on_done, **options)

    def train(self, worker, task, group):
        super().train(Slow(worker, self.folder), task, group)


def run(root, notes, address=None, num_workers="1"):
    display = Display()
    overrides = {"compute.num_workers": json.loads(num_workers)}
    made = make_run(RECIPE, overrides, root=root, environment={}, say=display.say)
    if address is None:
        import torch

        torch.set_num_threads(1)
        return document(made, made.execute(Workplace(InProcess(), display)))
    with Cluster(address) as cluster:
        compute = Noting(cluster.connect, notes)
        make_ready(cluster, compute, made)
        return document(made, made.execute(Workplace(compute, display)))


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # Ray tells there of nodes that are gone
        found = run(*sys.argv[1:])
    print(json.dumps(found))
