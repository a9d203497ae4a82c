"""What a stack remembers between commands: `state.json` in its folder, and a lock beside it."""

import contextlib
import fcntl
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from pipeline.artifact import write_json
from pipeline.section import Section

STATE_FILE = "state.json"
LOCK_FILE = "lock"


class Started(Section):
    """One service that was started."""

    pid: int
    started_at: str
    """ISO 8601, UTC."""


class State(Section):
    """A stack's memory."""

    mark: str
    """What its processes carry."""
    ports: dict[str, int] = {}  # noqa: RUF012 - pydantic gives each its own copy
    services: dict[str, Started] = {}  # noqa: RUF012
    scratch: str | None = None
    """Ray's folder: its sockets need a short path."""


def fresh(folder: Path) -> State:
    """Nothing started. The mark follows from the folder: a lost state file loses no process."""
    return State(mark=hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16])


def read(folder: Path, say: Callable[[str], None]) -> State:
    """What is remembered; a damaged file is as none."""
    path = folder / STATE_FILE
    try:
        return State.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return fresh(folder)
    except (ValidationError, UnicodeDecodeError):
        say(f"{path} is damaged; the stack's processes are found by their mark.")
        return fresh(folder)


def write(folder: Path, state: State) -> None:
    """Remember, whole and durably."""
    write_json(folder / STATE_FILE, state.model_dump(mode="json"))


def forget(folder: Path) -> None:
    """Nothing runs any more."""
    (folder / STATE_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """One command changes a stack at a time; the kernel frees a killed one's lock."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / LOCK_FILE).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another command works on this stack; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
