"""The processes that train one model together, and what they exchange.

Every exchange gives all workers the same bits, whatever their number: sums follow a fixed binary
tree over the micro-batches of a step, of which each worker holds an aligned block of leaves.

Axes: P parameters, W workers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Workers:
    """This process among the workers. The default is a process on its own."""

    rank: int = 0
    size: int = 1
    group: dist.ProcessGroup | None = None
    """Who takes part. None: all processes of torch.distributed."""

    @classmethod
    def here(cls, at_most: int) -> "Workers | None":
        """Return this process's place in torch.distributed's group, or alone if there is none.

        Only the first 1, 2, 4, … processes take part, as many as there are and `at_most` of them
        (a power of two). The others get None: there is nothing for them to do.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        rank, world = dist.get_rank(), dist.get_world_size()
        size = min(1 << (world.bit_length() - 1), at_most)
        group = None if size == world else dist.new_group(range(size))
        return cls(rank, size, group) if rank < size else None

    def sum_in_tree(self, values_P: Tensor) -> None:
        """Replace `values_P` by its sum over workers: pairs of neighbours, then pairs of pairs.

        Each worker sums one chunk of all workers' values, so that the order is fixed, the work
        shared, and each value sent twice, as in a ring all-reduce. The size must be a power of
        two and divide P.
        """
        if self.size == 1:
            return
        chunks = list(values_P.chunk(self.size))
        parts = [torch.empty_like(chunk) for chunk in chunks]
        self._exchange(chunks, parts)
        parts[self.rank] = chunks[self.rank]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [left.add_(right) for left, right in pairs]
        chunks[self.rank].copy_(parts[0])
        self._exchange([chunks[self.rank]] * self.size, chunks)

    def _exchange(self, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        """Send one tensor to each other worker, and receive one from each into the tensors given.

        From place to place: gloo's all_to_all and all_gather copy once more, and take half as much
        time again.
        """
        others = [worker for worker in range(self.size) if worker != self.rank]
        sends = [dist.P2POp(dist.isend, sent[worker], worker, self.group) for worker in others]
        receives = [dist.P2POp(dist.irecv, received[at], at, self.group) for at in others]
        for request in dist.batch_isend_irecv(sends + receives):
            request.wait()

    def gather(self, values: Tensor) -> Tensor:
        """Stack every worker's values along a new first axis W. Shapes must be equal."""
        if self.size == 1:
            return values[None]
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(gathered, values, group=self.group)
        return torch.stack(gathered)

    def copy_from_first(self, values: Tensor) -> None:
        """Replace `values` by the first worker's."""
        if self.size > 1:
            dist.broadcast(values, src=0, group=self.group)

    def ask_first(self, question: Callable[[], Answer]) -> Answer:
        """Let the first worker answer, and give all workers its answer, or its error."""
        if self.size == 1:
            return question()
        answer: list[Answer | Exception | None] = [None]
        if self.rank == 0:
            try:
                answer[0] = question()
            except Exception as error:  # noqa: BLE001 - raised by all workers below
                answer[0] = error
        dist.broadcast_object_list(answer, src=0, group=self.group)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]  # type: ignore[return-value]

    def wait_for_all(self) -> None:
        """Return when every worker has come here."""
        if self.size > 1:
            dist.barrier(group=self.group)
