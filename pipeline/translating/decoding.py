"""Batches of sources searched side by side on one machine; and how texts become batches.

On a CPU one-thread workers, one per thread that the caller may use, beat one search on all threads:
a step's products are small. On a GPU one search at a time fills the device.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import torch

from model.config import EOS, SearchConfig
from model.search import Extras, Hypothesis, beam_search
from model.transformer import Transformer, pad_sequences
from pipeline.errors import TradukoError

TOKENS_PER_BATCH = 2_000
"""Source tokens, padding included. More leave a CPU's caches; a GPU takes `TOKENS_PER_GPU_BATCH`."""
TOKENS_PER_GPU_BATCH = 16_000


class Batch(NamedTuple):
    """Sentences that are searched together."""

    sources: Sequence[Sequence[int]]
    """Piece ids, without EOS. None is empty."""
    numbers: Sequence[int]
    """Of each in the whole text: samples depend on it."""
    prefixes: Sequence[Sequence[int]] | None = None
    """Token ids that each one's translations must begin with."""


Pending = Callable[[], list[list[Hypothesis]]]
"""Waits for a batch: of each sentence its hypotheses, best first. Raises what its search raised."""


class Engine(Protocol):
    """Searches batches, some of them at the same time."""

    max_positions: int
    """Longest source in tokens, EOS included."""
    num_workers: int
    """How many batches it works on at once."""
    tokens_per_batch: int
    """Source tokens that suit it."""
    align_layer: int
    """The decoder layer whose attention aligns best, from 1. 0: it gives no alignments."""

    def submit(self, batch: Batch, search: SearchConfig) -> Pending:
        """Begin with a batch as soon as a worker is free."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give up what is not done, within about the time of a step."""
        ...


class TorchEngine:
    """Our own search. Which worker takes a batch, and how many there are, changes no bit."""

    def __init__(self, model: Transformer, num_workers: int | None = None) -> None:
        """`num_workers`: on a CPU; none = as many as torch may use threads here."""
        self.max_positions = model.config.max_positions
        self.align_layer = max(1, model.config.num_decoder_layers - 1)
        self._model, self._device = model, model.embedding.weight.device
        self._stop = threading.Event()
        if self._device.type == "cpu":
            self.tokens_per_batch = TOKENS_PER_BATCH
            self.num_workers = num_workers or torch.get_num_threads()
            self._pool = _one_thread_workers(self.num_workers)
        else:
            self.tokens_per_batch, self.num_workers = TOKENS_PER_GPU_BATCH, 1
            self._pool = ThreadPoolExecutor(1)

    def submit(self, batch: Batch, search: SearchConfig) -> Pending:
        """Begin with a batch as soon as a worker is free."""
        return self._pool.submit(self._search, batch, search).result

    def _search(self, batch: Batch, search: SearchConfig) -> list[list[Hypothesis]]:
        sources = pad_sequences([[*ids, EOS] for ids in batch.sources]).to(self._device)
        extras = Extras(batch.prefixes, batch.numbers, self._stop.is_set)
        try:
            return beam_search(self._model, sources, search, extras)
        except ValueError as error:  # a damaged model, an option that does not fit it
            raise TradukoError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)


def cut_batches(lengths: Sequence[int], tokens_per_batch: int) -> list[list[int]]:
    """Rows with text, longest first, cut so that rows x longest stays in the budget.

    Args:
        lengths: Of each row in tokens, EOS included: 1 is a blank one.
        tokens_per_batch: The budget; a longer row is a batch of its own.
    """
    batches: list[list[int]] = []
    room = 0
    rows = (row for row, length in enumerate(lengths) if length > 1)
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        if room == 0:
            batches.append([])
            room = max(1, tokens_per_batch // lengths[row])
        batches[-1].append(row)
        room -= 1
    return batches


def _one_thread_workers(count: int) -> ThreadPoolExecutor:
    """Threads in which torch uses no others; the caller's setting stays what it was."""
    before, all_started = torch.get_num_threads(), threading.Barrier(count + 1)

    def start() -> None:
        torch.get_num_threads()  # the first call in a thread sets its number to the last one set
        torch.set_num_threads(1)
        all_started.wait()

    pool = ThreadPoolExecutor(count, initializer=start)
    for _ in range(count):
        pool.submit(int)  # a task each starts the workers
    all_started.wait()
    torch.set_num_threads(before)  # the number that threads begin with is one for the process
    return pool
