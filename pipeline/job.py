"""What a stage is handed besides its config and inputs: nothing here changes a result."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pipeline.compute import Compute
from pipeline.config import ComputeConfig
from pipeline.fetching.fetched import Files


class Progress(Protocol):
    """Shown to whoever watches; free to call often."""

    def __call__(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """`done` of `total` units are finished; `note` is a few words more."""
        ...


@dataclass(frozen=True)
class Job:
    """One stage's workplace."""

    out: Path
    """Empty; all that the stage makes goes here."""
    work: Path
    """Resumable state: what an earlier, broken attempt left, and what this one may leave."""
    compute: Compute
    settings: ComputeConfig
    files: Files
    """Where the files that sources name come from."""
    progress: Progress
    say: Callable[[str], None]
    """Told of what a person should know."""
