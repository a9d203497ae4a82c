"""A number for each row, the same on every machine: orders rows, and samples them.

It depends on the row's place (source, line) alone, so any cut of the rows gives the same numbers.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

BINS = 1 << 16
"""Of the histogram by which a sample is cut: it may lack one in so many of the rows."""


def row_hashes(sources: pa.Array, lines: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row's source name and line (the SplitMix64 finish)."""
    if not pa.types.is_dictionary(sources.type):
        sources = sources.dictionary_encode()
    seeds = [
        int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        for name in sources.dictionary.to_pylist()
    ]
    mixed = np.array(seeds, dtype=np.uint64)[sources.indices.to_numpy()]
    mixed ^= lines.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def sample_end(hashes: Iterable[np.ndarray], most: int) -> tuple[int, int]:
    """Where to cut, and how many rows have a hash below it: at most so many, and hardly fewer.

    Reads the hashes once, in memory that does not grow with them.
    """
    counts = np.zeros(BINS, dtype=np.int64)
    for part in hashes:
        bins = (part >> np.uint64(48)).astype(np.int64)
        counts += np.bincount(bins, minlength=BINS)
    below = np.append(0, np.cumsum(counts))
    num_bins = int(np.searchsorted(below, most, side="right")) - 1
    return num_bins << 48, int(below[num_bins])
