"""What a stage is handed besides its config and inputs: nothing here changes a result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from pipeline.compute import ONE_CPU, Compute, OnDone, Resources
from pipeline.config import ComputeConfig
from pipeline.fetching.fetched import Files

T = TypeVar("T")
R = TypeVar("R")


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
    need: Resources = ONE_CPU
    """What each of this stage's tasks holds of a machine."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        on_done: OnDone | None = None,
        *,
        use_gpu: bool = False,
    ) -> list[R]:
        """`function` of every item, in the items' order, as tasks of the compute seam.

        With `use_gpu` each has a GPU to itself while it runs.
        """
        need = replace(self.need, num_gpus=int(use_gpu))
        return self.compute.map(function, items, on_done, need=need)
