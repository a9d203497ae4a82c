"""Training pairs to learn from: all, or a sample of bounded size."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.artifact import Artifact
from pipeline.pieces.row_hash import row_hashes, sample_end
from pipeline.tables import BATCH_ROWS, open_parquet, read_batches


class Sample:
    """The pairs of `dedup`, or at most so many, drawn by a hash of their place (source, line).

    Which ones depends on the rows alone, not on how they are cut into files; their order is that of
    the files. Reading takes memory that does not grow with them.
    """

    def __init__(self, dedup: Artifact, most: int):
        self.rows_in: int = dedup.stats["rows_kept"]
        self.num_rows = self.rows_in
        self._paths = dedup.paths("part-*.parquet")
        self._end: int | None = None
        if self.rows_in > most:
            self._end, self.num_rows = sample_end(map(_hashes, _places(self._paths)), most)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in read_batches(self._paths):
            if self._end is None:
                yield batch
            else:
                yield batch.filter(pa.array(_hashes(batch) < np.uint64(self._end)))


def _places(paths: list[Path]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with open_parquet(path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=["source", "line"])


def _hashes(batch: pa.RecordBatch) -> np.ndarray:
    return row_hashes(batch["source"], batch["line"].to_numpy())
