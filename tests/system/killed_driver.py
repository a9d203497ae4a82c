"""Runs a recipe on a local Ray, without Prefect and MLflow, and SIGKILLs itself within a stage.

    killed_driver.py RECIPE ROOT [STAGE MOMENT]

MOMENT is `working` (the attempt has begun; for train: a checkpoint is there) or `committing` (all
is written, the manifest is about to get its name). Without them it runs to its end and prints the
run's document.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from flows.cluster import Cluster
from flows.progress import Terminal
from flows.run import Workplace, document, make_run
from pipeline.ray_compute import RayCompute


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_working(stage, attempt):
    work = attempt.parents[2] / "work" / stage
    while stage == "train" and not list(work.glob("*/step-*")):
        time.sleep(0.02)
    time.sleep(0.05)
    die()


def watch(stage, moment):
    def hook(event, arguments):
        if event == "os.mkdir" and moment == "working":
            path = Path(os.fsdecode(arguments[0]))
            if path.name.startswith("attempt-") and path.parents[1].name == stage:
                threading.Thread(target=die_while_working, args=(stage, path), daemon=True).start()
        if event == "os.rename":
            target = Path(os.fsdecode(arguments[1]))
            if target.name == "manifest.json" and target.parents[1].name == stage:
                if moment == "working":
                    time.sleep(60)  # a stage quicker than its killer waits for it
                die()

    sys.addaudithook(hook)


def run(recipe, root):
    terminal = Terminal()
    made = make_run(recipe, {}, root=root, environment={}, say=terminal.say)
    with Cluster(None) as cluster:
        results = made.execute(Workplace(RayCompute(cluster.connect), terminal))
    return document(made, results)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        watch(*sys.argv[3:5])
    print(json.dumps(run(*sys.argv[1:3])))
