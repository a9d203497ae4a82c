"""Tables on disk: shards of Parquet and Arrow, and a digest of their rows.

The digest is over values, not over bytes of files: it is the same for any file format, compression,
row-group size and library version, and any cut of the rows into batches.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PAIRS = pa.schema(
    [
        pa.field("src", pa.string(), nullable=False),
        pa.field("tgt", pa.string(), nullable=False),
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
    ]
)
"""Rows of parallel text: both sides, the source's name, the 1-based line there."""

REJECTED = PAIRS.append(pa.field("rule", pa.string(), nullable=False))
"""Rejected rows, each with the first rule that rejected it."""

ROWS_PER_SHARD = 1_000_000
BATCH_ROWS = 65_536
DIGEST_ROWS = 8_192
"""Read at a time where only their bytes are wanted: as fast, for a fraction of the memory."""
READ_BYTES = 1 << 20


class ParquetShards:
    """Writes rows into `part-00000.parquet`, `part-00001.parquet` … of one folder.

    Shards are cut by row count alone, so they depend on the rows and not on how they arrive.
    """

    def __init__(self, folder: Path, schema: pa.Schema, rows_per_shard: int = ROWS_PER_SHARD):
        self._folder = folder
        self._schema = schema
        self._rows_per_shard = rows_per_shard
        self._writer: pq.ParquetWriter | None = None
        self._rows_in_shard = 0
        self._num_shards = 0
        self.num_rows = 0
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of any size."""
        start = 0
        while start < batch.num_rows:
            room = self._rows_per_shard - self._rows_in_shard
            piece = batch.slice(start, room)
            self._open().write_batch(piece.cast(self._schema), row_group_size=BATCH_ROWS)
            start += piece.num_rows
            self._rows_in_shard += piece.num_rows
            self.num_rows += piece.num_rows
            if self._rows_in_shard == self._rows_per_shard:
                self._close()

    def __enter__(self) -> "ParquetShards":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None and self._num_shards == 0:
            self._open()  # an empty table is a table: its schema is kept
        self._close()

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            path = self._folder / f"part-{self._num_shards:05d}.parquet"
            self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")
            self._num_shards += 1
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._rows_in_shard = 0


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file to read it a part at a time.

    Arrow's default fetches at once all that will be asked for: memory would hold whole files.
    """
    return pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False)


def read_batches(paths: Iterable[Path], batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Rows of Parquet or Arrow IPC files, in order, in bounded memory.

    Args:
        paths: Of the files.
        batch_rows: At most so many rows of Parquet at a time.
    """
    for path in paths:
        if path.suffix == ".parquet":
            with open_parquet(path) as file:
                yield from file.iter_batches(batch_size=batch_rows)
        else:
            with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
                for index in range(reader.num_record_batches):
                    yield reader.get_batch(index)


def is_table(path: Path) -> bool:
    """Whether a file's content is rows."""
    return path.suffix in {".parquet", ".arrow"}


def rows_digest(path: Path) -> tuple[int, str]:
    """Number of rows of a table file, and the digest of their values."""
    digest = RowsDigest()
    for batch in read_batches([path], DIGEST_ROWS):
        digest.update(batch)
    return digest.num_rows, digest.hexdigest()


class RowsDigest:
    """SHA-256 over rows: for each column one hash of its values and one of their lengths."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._columns: dict[str, tuple[str, Any, Any]] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Tables of this project hold no nulls."""
        self.num_rows += batch.num_rows
        for name, encoded in zip(batch.schema.names, batch.columns, strict=True):
            assert encoded.null_count == 0, f"column {name} holds nulls"
            is_dictionary = pa.types.is_dictionary(encoded.type)
            column = encoded.cast(encoded.type.value_type) if is_dictionary else encoded
            fresh = (str(column.type), hashlib.sha256(), hashlib.sha256())
            kind, values, lengths = self._columns.setdefault(name, fresh)
            assert kind == str(column.type), f"column {name} changes its type"
            _hash_column(column, values, lengths)

    def hexdigest(self) -> str:
        """The digest, 64 hex digits."""
        columns = [
            [name, kind, values.hexdigest(), lengths.hexdigest()]
            for name, (kind, values, lengths) in self._columns.items()
        ]
        return hashlib.sha256(json.dumps([self.num_rows, columns]).encode()).hexdigest()


def _hash_column(column: pa.Array, values: Any, lengths: Any) -> None:  # noqa: ANN401 - hashlib's
    if pa.types.is_list(column.type):
        lengths.update(column.value_lengths().to_numpy().astype("<i4").tobytes())
        values.update(column.flatten().to_numpy().tobytes())
    elif pa.types.is_string(column.type):
        _, offsets_buffer, data = column.buffers()
        if offsets_buffer is None or len(column) == 0:
            return
        offsets = np.frombuffer(offsets_buffer, dtype="<i4")
        offsets = offsets[column.offset : column.offset + len(column) + 1]
        lengths.update(np.diff(offsets).tobytes())
        if data is not None:
            values.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
    else:
        values.update(column.to_numpy().tobytes())
