"""SIGKILL at each operation by which a run changes its folder."""

import os
import shutil
import signal
import sys
from pathlib import Path

from model import checkpoint
from pipeline.events import EVENTS_FILE
from tests.system.chaos.training import Alone, Disturbance, Place, attempt, events, trained

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link")


CONFIG = {"max_steps": 6, "checkpoint_every_steps": 2, "dev_every_steps": 3, "keep_checkpoints": 1}


def kill_at_each_operation(folder, tokens, processes, *, damaged=False):
    """Check that a run killed there gives what an undisturbed one does.

    Args:
        folder: Empty.
        tokens: To train on.
        processes: What starts processes.
        damaged: Whether the newest checkpoint is, that the killed run begins from.
    """
    expected = Place(folder / "expected").make()
    out = attempt(expected, tokens, Alone(), **CONFIG)
    before = Place(folder / "before").make([Disturbance(6, "worker")])
    assert _die(before, tokens, processes) == -signal.SIGKILL
    with (before.work / EVENTS_FILE).open("a") as file:
        file.write('{"step": 6, "ti')  # killed while writing
    if damaged:
        os.truncate(before.work / "step-00000004" / checkpoint.WEIGHTS, 100)
    dry = Place(folder / "dry")
    shutil.copytree(before.folder, dry.folder)
    assert _die(dry, tokens, processes) == 0
    operations = (dry.notes / "operations").read_text().splitlines()
    assert len(operations) > 25
    for number, operation in enumerate(operations):
        place = Place(folder / f"killed-{number}")
        shutil.copytree(before.folder, place.folder)
        assert _die(place, tokens, processes, number) == -signal.SIGKILL, operation
        rerun = attempt(place, tokens, Alone(), **CONFIG)
        assert _files(rerun) == _files(out), operation
        assert events(rerun) == events(out), operation
        assert trained(place) == trained(expected), operation


def _files(out):
    return {path.relative_to(out): path.read_bytes() for path in out.glob("step-*/*")}


def _die(place, tokens, processes, at=-1):
    """Run an attempt in a process of its own that is killed at an operation; its exit code."""
    child = processes.Process(target=_run_and_die, args=(place.folder, tokens, at))
    child.start()
    child.join(120)
    return child.exitcode


def _run_and_die(folder, tokens, at):
    """Run an attempt that is killed right before its operation number `at`, counted from 0.

    What it came to is listed in a file of the place.
    """
    place = Place(folder)
    reached = os.open(place.notes / "operations", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    count = iter(range(sys.maxsize))

    def reach(name, path):
        if path.is_relative_to(place.work):
            if next(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(reached, f"{name} {path.relative_to(place.work)}\n".encode())

    _watch(reach)
    attempt(place, tokens, Alone(), **CONFIG)


def _watch(reach):
    """Call `reach` before each operation that changes a file or makes a change last."""
    fsync, save_file = os.fsync, checkpoint.save_file

    def hook(event, arguments):
        if event == "open" and arguments[2] & os.O_ACCMODE != os.O_RDONLY:
            reach(event, _resolve(arguments[0], -1))
        elif event in CHANGES:
            reach(event, _resolve(arguments[0], arguments[-1]))

    def reach_and_flush(descriptor):
        reach("fsync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def reach_half_way(tensors, path):
        save_file(tensors, path)
        os.truncate(path, path.stat().st_size // 2)
        reach("half of", path)
        save_file(tensors, path)

    os.fsync, checkpoint.save_file = reach_and_flush, reach_half_way
    sys.addaudithook(hook)


def _resolve(path, folder):
    """A path that may be relative to an open folder."""
    if isinstance(path, int):
        return Path(f"/proc/self/fd/{path}").readlink()
    path = Path(os.fsdecode(path))
    return (
        path
        if path.is_absolute() or folder < 0
        else Path(f"/proc/self/fd/{folder}").readlink() / path
    )
