"""A file that is on its way: the bytes that have come, and what is known of the rest.

Beside the target `NAME` lie `NAME.partial`, the bytes, and `NAME.partial.json`, what the server said
of them. Both outlive the process, so that a later attempt can go on. What turned out to be wrong lies
in `set-aside/NAME`, with `set-aside/NAME.why.txt`; nothing reads it but a person.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from pipeline.artifact import write_json
from pipeline.fetching.disk import disk_errors, publish

Progress = Callable[[int, int | None], None]
"""Takes the bytes that are there and the bytes to expect (None where that is not known)."""


@dataclasses.dataclass(frozen=True)
class Note:
    """What a server said of the file whose first bytes are there."""

    address: str
    """Public: without credentials."""
    validator: str | None
    """A strong ETag, in quotes, or a date of modification: another one means another file."""
    size_bytes: int | None
    """Of the whole file."""


class Partial:
    """The part of a file that has come."""

    def __init__(self, target: Path):
        self.target = target
        self.path = target.with_name(f"{target.name}.partial")
        self._note_path = target.with_name(f"{target.name}.partial.json")

    @property
    def size_bytes(self) -> int:
        """How much of it is there."""
        return self.path.stat().st_size if self.path.exists() else 0

    def note(self) -> Note | None:
        """What is known of the file; None if nothing is, or it cannot be read."""
        try:
            return Note(**json.loads(self._note_path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def begin(self, note: Note) -> None:
        """Forget what is there: other bytes come, from the first one."""
        with disk_errors(self.path):
            self.path.unlink(missing_ok=True)  # first: a note never speaks of another file's bytes
            write_json(self._note_path, dataclasses.asdict(note))

    def append(
        self,
        blocks: Iterable[bytes],
        size_bytes: int | None,
        most_bytes: int | None,
        report: Progress,
    ) -> None:
        """Write blocks after what is there; they are safe on the disk when this returns.

        Args:
            blocks: As they come; those before an error stay.
            size_bytes: What the whole file will have, to be shown.
            most_bytes: Where to stop, a block beyond it.
            report: Called after each block.
        """
        done_bytes = self.size_bytes
        with disk_errors(self.path), self.path.open("ab") as file:
            for block in blocks:
                file.write(block)
                done_bytes += len(block)
                report(done_bytes, size_bytes)
                if most_bytes is not None and done_bytes > most_bytes:
                    break
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Forget what is there."""
        with disk_errors(self.path):
            self.path.unlink(missing_ok=True)
            self._note_path.unlink(missing_ok=True)

    def set_aside(self, why: str) -> Path:
        """Move what is there out of the way, for a person to look at; where it is then."""
        aside = self.target.parent / "set-aside" / self.target.name
        with disk_errors(aside):
            aside.parent.mkdir(exist_ok=True)
            self.path.replace(aside)
            aside.with_name(f"{aside.name}.why.txt").write_text(f"{why}\n", encoding="utf-8")
        self.clear()
        return aside

    def publish(self) -> None:
        """Give the whole file its name, durably."""
        publish(self.path, self.target)
        self.clear()
