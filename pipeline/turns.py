"""Taking turns: of several processes one does a piece of work, the others wait and say what for.

A turn is a lock on a file, which says who holds it. The kernel frees a killed holder's lock.
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

LOOK_EVERY_S = 0.2
SIGNED_WITHIN_S = 2.0
"""Between taking a lock and saying whose it is a busy machine may let this long pass."""
REMIND_EVERY_S = 60.0
"""How often a person at a terminal is told that the wait goes on."""


class Holder(NamedTuple):
    """Whose turn it is."""

    what: str
    """What is done."""
    pid: int
    host: str
    since: str
    """ISO 8601, UTC."""

    def __str__(self) -> str:
        began = datetime.fromisoformat(self.since).astimezone()
        return f"process {self.pid} on {self.host}, since {began:%H:%M:%S}"


def unheard(line: str) -> None:
    """Nobody listens."""
    del line


class Voice(NamedTuple):
    """How a wait is told."""

    say: Callable[[str], None]
    """Once, when it begins."""
    remind: Callable[[str], None] = unheard
    """Now and then while it goes on: for a terminal."""


@contextlib.contextmanager
def turn(path: Path, what: str, waits: str, voice: Voice) -> Iterator[None]:
    """One holder of this file at a time.

    Args:
        path: The lock; it stays, empty between turns.
        what: The work, for those who wait.
        waits: What one of those says first: "train: another run is building it".
        voice: Tells of the wait, with who holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        if not _lock(file):
            _wait(file, path, waits, voice)
        with contextlib.suppress(OSError):  # a full disk takes no note, but the lock holds
            _sign(file, Holder(what, os.getpid(), socket.gethostname(), _now()))
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                file.truncate(0)


def holder(path: Path) -> Holder | None:
    """Who has signed a lock; nobody, or one who was just killed, may hold it now."""
    try:
        return Holder(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # signed at this moment, or not at all
        return None


def work_of(whose: Holder, folder: Path) -> str | None:
    """What a holder of a lock in a folder is at: the lock that it has signed last."""
    signed = [other for path in folder.iterdir() if (other := holder(path))]
    own = [other for other in signed if other[1:3] == whose[1:3] and other != whose]
    return max(own, key=lambda other: other.since).what if own else None


def _wait(file: IO[str], path: Path, waits: str, voice: Voice) -> None:
    start = told = time.perf_counter()
    said = False
    while not _lock(file):
        time.sleep(LOOK_EVERY_S)
        now = time.perf_counter()
        if not said and (holder(path) or now - start >= SIGNED_WITHIN_S):
            said = True
            voice.say(f"{waits}{_told(path)}; waiting for that")
        elif said and now - told >= REMIND_EVERY_S:
            told = now
            voice.remind(f"{waits}{_told(path)}; waiting for {_minutes(now - start)}")


def _told(path: Path) -> str:
    """` (process 7 on node1, since 10:53:02, at train)`."""
    whose = holder(path)
    if whose is None:
        return ""
    work = work_of(whose, path.parent)
    return f" ({whose}{', at ' + work if work else ''})"


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: IO[str], whose: Holder) -> None:
    file.truncate(0)
    file.write(json.dumps(whose._asdict()))
    file.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
