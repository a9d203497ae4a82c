"""Which of many keys came before: decided per range of keys, in memory that the rows do not change.

Each span sorts its keys into a file of its own; each partition then takes one range of keys from
all files, and the first of equal keys is the one with the lowest row number. A key that a span has
more than once is handed on once, so that no partition grows with how often a row is repeated.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.deduping.match_keys import Keys
from pipeline.whole_file import whole_file

PARTITION_ROWS = 500_000
"""Most rows of a partition, about: 24 bytes each, and several times as much for a while to sort them."""

KeyedRows = npt.NDArray[np.uint64]
"""Upper halves, lower halves and row numbers [3, rows]."""


class Partition(NamedTuple):
    """The keys whose upper half is in [low, high], and the file that their rows go to."""

    low: int
    high: int
    out: str


def key_ranges(num_rows: int, partition_rows: int) -> list[tuple[int, int]]:
    """Equal ranges of the upper half of keys, both ends inclusive: as many as the rows need."""
    number = max(1, -(-num_rows // partition_rows))
    edges = [(1 << 64) * index // number for index in range(number + 1)]
    return [(low, high - 1) for low, high in itertools.pairwise(edges)]


def write_keys(path: Path, keys: Keys, first_row: int) -> npt.NDArray[np.bool_]:
    """Store a span's keys in their order, each once, with the number of its row.

    Returns:
        For each row whether an earlier one of the span has the same key.
    """
    numbers = np.arange(first_row, first_row + len(keys), dtype=np.uint64)
    rows, order, is_later = _sorted(np.stack([keys["high"], keys["low"], numbers]))
    save(path, rows[:, ~is_later])
    is_repeated = np.empty(len(keys), dtype=bool)
    is_repeated[order] = is_later
    return is_repeated


def find_later(partition: Partition, spans: Sequence[str]) -> int:
    """Store, ascending, the rows that have the key of an earlier one; how many."""
    rows, is_later = _gathered(partition, spans)
    later = np.sort(rows[2, is_later])
    save(Path(partition.out), later)
    return len(later)


def find_firsts(partition: Partition, spans: Sequence[str]) -> int:
    """Store the first row of each key, in the order of keys; how many."""
    rows, is_later = _gathered(partition, spans)
    firsts = rows[2, ~is_later]
    save(Path(partition.out), firsts)
    return len(firsts)


def rows_between(path: str, start: int, end: int) -> npt.NDArray[np.int64]:
    """Of a file's ascending rows those from `start` to below `end`."""
    rows = np.load(path, mmap_mode="r")
    first, last = np.searchsorted(rows, np.array([start, end], dtype=np.uint64))
    return np.asarray(rows[first:last]).astype(np.int64)


def save(path: Path, array: npt.NDArray[np.generic]) -> None:
    """Store an array, whole or not at all."""
    with whole_file(path) as partial_path, partial_path.open("wb") as file:
        # Given the file itself, NumPy would say of a full disk only that it wrote too little.
        np.save(SimpleNamespace(write=file.write), array)


def _gathered(
    partition: Partition, spans: Sequence[str]
) -> tuple[KeyedRows, npt.NDArray[np.bool_]]:
    """All rows of a partition, sorted; and which have the key of the one before."""
    rows, _, is_later = _sorted(np.concatenate([_part(path, partition) for path in spans], axis=1))
    return rows, is_later


def _part(path: str, partition: Partition) -> KeyedRows:
    rows = np.load(path, mmap_mode="r")
    start = np.searchsorted(rows[0], np.uint64(partition.low), side="left")
    end = np.searchsorted(rows[0], np.uint64(partition.high), side="right")
    return np.array(rows[:, start:end])


def _sorted(rows: KeyedRows) -> tuple[KeyedRows, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Rows by key, equal keys in the order given; that order; and which equal the one before."""
    order = np.lexsort((rows[1], rows[0]))
    rows = rows[:, order]
    is_later = np.zeros(len(order), dtype=bool)
    is_later[1:] = (rows[:2, 1:] == rows[:2, :-1]).all(axis=0)
    return rows, order, is_later
