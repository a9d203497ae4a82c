"""Where table functions and training workers run: the seam, and its form inside this process.

Ray's form is in `ray_compute.py`. Results never depend on which one is used.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
OnDone = Callable[[int], None]
"""Told how many items are done."""


class WorkerGroup(NamedTuple):
    """Training workers to start."""

    num_workers: int | tuple[int, int]
    """So many; or from a least to a most, as the cluster allows at the time."""
    num_threads: int
    """CPU threads and CPUs of each."""
    use_gpu: bool
    """Whether each has a GPU to itself."""
    storage: Path
    """A folder that all of them see, for the engine's own notes."""
    stop_file: Path
    """Made when the run is interrupted. Workers that see it save what they have, and end."""


IsLeaving = Callable[[], bool]
"""Asked before each step; true once, when a machine under the workers is about to go."""
TrainingWorker = Callable[[Any, IsLeaving], None]
"""What runs on each worker, given its task. What it raises of `TradukoError`, all of them raise."""


class Compute(Protocol):
    """A place to run work on: one process, one machine, or a cluster."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        on_done: OnDone | None = None,
        *,
        use_gpu: bool = False,
    ) -> list[R]:
        """`function` of every item, in the items' order.

        The function is picklable, may run twice for one item, and writes only what the item names.
        With `use_gpu` each has a GPU to itself while it runs.
        """
        ...

    def num_cpus(self) -> int:
        """CPUs to share out among workers."""
        ...

    def num_gpus(self) -> int:
        """GPUs to share out among workers."""
        ...

    def num_places(self, num_cpus: int, *, use_gpu: bool) -> int:
        """How many workers of so many CPUs, and a GPU if they use one, fit on its machines at once.

        A worker never spans two machines.
        """
        ...

    def train(self, worker: TrainingWorker, task: Any, group: WorkerGroup) -> None:  # noqa: ANN401
        """Run `worker` on every worker of a group, joined in one torch process group."""
        ...


class InProcess:
    """Everything in this process, one thing after another: for tests and for tiny work."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        on_done: OnDone | None = None,
        *,
        use_gpu: bool = False,
    ) -> list[R]:
        """`function` of every item, in the items' order."""
        assert not use_gpu, "there is none to share out"
        results = []
        for item in items:
            results.append(function(item))
            if on_done:
                on_done(len(results))
        return results

    def num_cpus(self) -> int:
        """One: this process."""
        return 1

    def num_gpus(self) -> int:
        """None: tests and tiny work need none."""
        return 0

    def num_places(self, num_cpus: int, *, use_gpu: bool) -> int:
        """As if all were one machine."""
        places = self.num_cpus() // num_cpus
        return min(places, self.num_gpus()) if use_gpu else places

    def train(self, worker: TrainingWorker, task: Any, group: WorkerGroup) -> None:  # noqa: ANN401
        """Run the one worker here."""
        assert group.num_workers == 1, "one process is one worker"
        worker(task, lambda: False)
