"""Event files: what a stage says of its progress, one JSON line each, for whoever follows it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.artifact import Json

if TYPE_CHECKING:
    from model.fit import Event

EVENTS_FILE = "events.jsonl"


class EventLog:
    """Appends events to a file of JSON lines.

    What an earlier attempt wrote after the step it is resumed from never happened: it is cut off.
    """

    def __init__(self, path: Path):
        self._path = path
        self._is_cut = False

    def __call__(self, event: "Event") -> None:
        """Write one event."""
        if event.kind == "resumed" or not self._is_cut:
            self._cut(event.step if event.kind == "resumed" else 0)
            self._is_cut = True
        line = {
            "step": event.step,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": event.kind,
            "metrics": dict(event.metrics),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _cut(self, last_step: int) -> None:
        kept = [line for line in read_events(self._path) if line["step"] <= last_step]
        temporary = self._path.with_suffix(".new")
        text = "".join(json.dumps(line) + "\n" for line in kept)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self._path)


def read_events(path: Path) -> list[Json]:
    """The events in a file; a last line that is being written is left out."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[:-1]]
