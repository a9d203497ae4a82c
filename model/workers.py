"""The processes that train one model together, and what they exchange.

Every exchange gives all workers the same bits, whatever their number: sums follow a fixed binary
tree over the micro-batches of a step, of which each worker holds an aligned block of leaves.

Axes: P parameters, W workers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from model.checkpoint import CheckpointError

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Workers:
    """This process among the workers. The default is a process on its own."""

    rank: int = 0
    size: int = 1

    @classmethod
    def here(cls) -> "Workers":
        """Return this process's place in torch.distributed's group, or alone if there is none."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def sum_in_tree(self, values_P: Tensor) -> None:
        """Replace `values_P` by its sum over workers: pairs of neighbours, then pairs of pairs.

        Each worker sums one chunk of all workers' values, so that the order is fixed, the work
        shared, and each value sent twice, as in a ring all-reduce. The size must be a power of
        two and divide P.
        """
        if self.size == 1:
            return
        received_P = torch.empty_like(values_P)
        dist.all_to_all_single(received_P, values_P)
        chunks = list(received_P.chunk(self.size))
        while len(chunks) > 1:
            pairs = zip(chunks[::2], chunks[1::2], strict=True)
            chunks = [left.add_(right) for left, right in pairs]
        dist.all_gather(list(values_P.chunk(self.size)), chunks[0])

    def gather(self, values: Tensor) -> Tensor:
        """Stack every worker's values along a new first axis W. Shapes must be equal."""
        if self.size == 1:
            return values[None]
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(gathered, values)
        return torch.stack(gathered)

    def copy_from_first(self, values: Tensor) -> None:
        """Replace `values` by the first worker's."""
        if self.size > 1:
            dist.broadcast(values, src=0)

    def ask_first(self, question: Callable[[], Answer]) -> Answer:
        """Let the first worker answer, and give all workers its answer, or its error."""
        if self.size == 1:
            return question()
        answer: list[Answer | CheckpointError | OSError | None] = [None]
        if self.rank == 0:
            try:
                answer[0] = question()
            except (CheckpointError, OSError) as error:
                answer[0] = error
        dist.broadcast_object_list(answer, src=0)
        if isinstance(answer[0], CheckpointError | OSError):
            raise answer[0]
        return answer[0]  # type: ignore[return-value]

    def wait_for_all(self) -> None:
        """Return when every worker has come here."""
        if self.size > 1:
            dist.barrier()
