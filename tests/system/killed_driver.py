"""Runs `traduko` and SIGKILLs itself in the middle of a stage.

    killed_driver.py STAGE MOMENT run RECIPE …

MOMENT is `working` (the attempt has begun; for train: a checkpoint is there) or `committing` (all
is written, the manifest is about to get its name).
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from flows.cli import main


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
        if event == "os.rename" and moment == "committing":
            target = Path(os.fsdecode(arguments[1]))
            if target.name == "manifest.json" and target.parents[1].name == stage:
                die()

    sys.addaudithook(hook)


if __name__ == "__main__":
    watch(*sys.argv[1:3])
    sys.exit(main(sys.argv[3:]))
