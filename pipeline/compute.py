"""Where table functions and training workers run: the seam, and its form inside this process.

Ray's form is in `ray_compute.py`. Results never depend on which one is used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
OnDone = Callable[[int], None]
"""Told how many items are done."""


@dataclass(frozen=True)
class Resources:
    """What a task or a training worker holds of a machine while it works; or what a machine has."""

    num_cpus: int = 1
    num_gpus: int = 0
    memory: int = 0
    """Bytes. Of a task: counted when it is placed, never enforced; 0 = not counted."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """Other resources, by the names that the machines were started with."""

    def places(self, need: "Resources") -> int:
        """How many that need so much have room here at once."""
        amounts = [
            (self.num_cpus, need.num_cpus),
            (self.num_gpus, need.num_gpus),
            (self.memory, need.memory),
            *((self.custom.get(name, 0), amount) for name, amount in need.custom.items()),
        ]
        return min(int(has // wants) for has, wants in amounts if wants)

    def __str__(self) -> str:
        """`2 CPUs, 1 GPU, 7.5 GiB of memory and 1 highmem`: what there is none of left out."""
        parts = [
            _count(self.num_cpus, "CPU"),
            *([_count(self.num_gpus, "GPU")] * (self.num_gpus > 0)),
        ]
        if self.memory:
            parts.append(f"{self.memory / (1 << 30):.3g} GiB of memory")
        parts += [f"{amount:g} {name}" for name, amount in self.custom.items()]
        return " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + parts[-1:])


ONE_CPU = Resources()


class Machine(NamedTuple):
    """A node of a cluster."""

    name: str
    """Of its host, which may have several nodes."""
    has: Resources
    """In all, whether it is in use or not."""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


class WorkerGroup(NamedTuple):
    """Training workers to start."""

    num_workers: int | tuple[int, int]
    """So many; or from a least to a most, as the cluster allows at the time."""
    num_threads: int
    """CPU threads of each."""
    need: Resources
    """What each holds of a machine."""
    storage: Path
    """A folder that all of them see, for the engine's own notes."""
    stop_file: Path
    """Made when the run is interrupted. Workers that see it save what they have, and end."""

    @property
    def use_gpu(self) -> bool:
        """Whether each has a GPU to itself."""
        return self.need.num_gpus > 0


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
        need: Resources = ONE_CPU,
    ) -> list[R]:
        """`function` of every item, in the items' order.

        The function is picklable, may run twice for one item, and writes only what the item names.

        Args:
            function: What is done.
            items: To what.
            on_done: Told how far it is.
            need: What each call holds of a machine. Where none has so much, it waits for ever.
        """
        ...

    def machines(self) -> list[Machine]:
        """All that may run work."""
        ...

    def train(self, worker: TrainingWorker, task: Any, group: WorkerGroup) -> None:  # noqa: ANN401
        """Run `worker` on every worker of a group, joined in one torch process group.

        Raises:
            LostWorkersError: If workers are lost more often than others are started for them.
        """
        ...


class InProcess:
    """Everything in this process, one thing after another: for tests and for tiny work."""

    def map(
        self,
        function: Callable[[T], R],
        items: Sequence[T],
        on_done: OnDone | None = None,
        need: Resources = ONE_CPU,
    ) -> list[R]:
        """`function` of every item, in the items' order."""
        assert not need.num_gpus, "there is none to share out"
        results = []
        for item in items:
            results.append(function(item))
            if on_done:
                on_done(len(results))
        return results

    def machines(self) -> list[Machine]:
        """One of one CPU: this process."""
        return [Machine("this process", ONE_CPU)]

    def train(self, worker: TrainingWorker, task: Any, group: WorkerGroup) -> None:  # noqa: ANN401
        """Run the one worker here."""
        assert group.num_workers == 1, "one process is one worker"
        worker(task, lambda: False)
