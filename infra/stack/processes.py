"""Processes that carry a mark: started, found again with all their descendants, ended, counted.

The mark is an environment variable, which descendants inherit. So what belongs to a stack is known
without trusting a file: a pid that another process has now does not carry it, and an orphan does.
"""

import contextlib
import operator
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

MARK = "TRADUKO_STACK"
POLL_S = 0.2
GRACE_S = 1.0
"""For children on their way out, and for the kernel after SIGKILL."""
NUM_KILLS = 10


def start(
    command: Sequence[str], environment: Mapping[str, str], mark: str, log: Path, folder: Path
) -> int:
    """Start a process in a session of its own, its output in a log; its pid."""
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - our own commands
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, MARK: mark},
            cwd=folder,
            start_new_session=True,
        )
    process.returncode = 0  # it outlives us: no warning when the object is collected
    return process.pid


def is_running(pid: int, mark: str) -> bool:
    """Whether the process of this pid is the one that was started with this mark."""
    try:
        process = psutil.Process(pid)
        return not is_over(process) and _mark(process) == mark
    except psutil.Error:
        return False


def is_over(process: psutil.Process) -> bool:
    """A zombie too is over: its parent, perhaps a container's first process, may never look."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def family(mark: str) -> set[psutil.Process]:
    """All processes whose mark begins so, and all their descendants, this process aside.

    Ray's workers write their title over their environment: these are found by their parents.
    """
    processes = {process.pid: process for process in psutil.process_iter()}
    parents = {pid: _parent(process) for pid, process in processes.items()}
    members = {pid for pid, process in processes.items() if _mark(process).startswith(mark)}
    news = set(members)
    while news:
        news = {pid for pid, parent in parents.items() if parent in news} - members
        members |= news
    members.discard(os.getpid())
    return {processes[pid] for pid in members if not is_over(processes[pid])}


def marks(beginning: str) -> set[str]:
    """The marks that begin so, of processes that run now."""
    found = (_mark(process) for process in psutil.process_iter())
    return {mark for mark in found if mark.startswith(beginning)}


def end(
    mark: str, first: Sequence[int], patience_s: float, rest_s: float | None = None
) -> set[psutil.Process]:
    """End all processes of a mark; those that could not be ended.

    Args:
        mark: Its beginning.
        first: Pids that are asked to end before all others, so that they can end their children.
        patience_s: How long these get before all are asked.
        rest_s: How long those get before all are killed; none = as long.
    """
    known = family(mark)
    leaders = {process for process in known if process.pid in first}
    _send(leaders, "terminate")
    known = _wait(mark, known, patience_s, until=lambda left: not left & leaders)
    known = _wait(mark, known, GRACE_S)
    _send(known, "terminate")
    known = _wait(mark, known, patience_s if rest_s is None else rest_s)
    for _ in range(NUM_KILLS):
        _send(known, "kill")
        known = _wait(mark, known, GRACE_S)
    return known


def command_line(process: psutil.Process) -> str:
    """As the process itself has it now: Ray's workers and services change theirs."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def memory_bytes(mark: str) -> int:
    """Resident memory of all processes of a mark, what they share counted for each."""
    total = 0
    for process in family(mark):
        with contextlib.suppress(psutil.Error):
            total += process.memory_info().rss
    return total


def _wait(
    mark: str,
    known: set[psutil.Process],
    patience_s: float,
    until: Callable[[set[psutil.Process]], bool] = operator.not_,
) -> set[psutil.Process]:
    """Those alive of the known and the newly found, once `until` holds of them or patience ends."""
    deadline = time.monotonic() + patience_s
    while True:
        known = {process for process in known | family(mark) if not is_over(process)}
        if until(known) or not known or time.monotonic() > deadline:
            return known
        time.sleep(POLL_S)


def _send(to: Iterable[psutil.Process], signal: str) -> None:
    for process in to:
        with contextlib.suppress(psutil.Error):
            getattr(process, signal)()  # psutil makes sure that the pid is still that process's


def _mark(process: psutil.Process) -> str:
    try:
        return str(process.environ().get(MARK, ""))
    except (psutil.Error, OSError):
        return ""


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0
