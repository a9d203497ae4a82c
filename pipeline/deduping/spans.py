"""Equal stretches of the rows of many Parquet files, for tasks that read one each.

Stretches are cut by row number alone, wherever files and row groups end.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import tables

SPAN_ROWS = 262_144
"""Rows of a span: what a task holds of numbers, and what a cluster shares out."""


class Part(NamedTuple):
    """Some rows of one file."""

    path: str
    start: int
    end: int


class Span(NamedTuple):
    """Consecutive rows."""

    number: int
    """From 0."""
    start: int
    """Number of its first row among all rows."""
    end: int
    """Number of the row after its last one."""
    parts: tuple[Part, ...]


def spans_of(paths: Iterable[Path], span_rows: int) -> list[Span]:
    """All rows of the files, in order, in stretches of `span_rows` (the last may be shorter)."""
    parts: list[list[Part]] = []
    num_rows = 0
    for path in paths:
        start, rows = 0, pq.read_metadata(path).num_rows
        while start < rows:
            if num_rows % span_rows == 0:
                parts.append([])
            end = min(rows, start + span_rows - num_rows % span_rows)
            parts[-1].append(Part(str(path), start, end))
            num_rows += end - start
            start = end
    return [
        Span(index, index * span_rows, min(num_rows, (index + 1) * span_rows), tuple(some))
        for index, some in enumerate(parts)
    ]


def read_span(span: Span) -> Iterator[pa.RecordBatch]:
    """The rows of a span, in order, a batch at a time."""
    for part in span.parts:
        yield from _read_part(part)


def _read_part(part: Part) -> Iterator[pa.RecordBatch]:
    with tables.open_parquet(Path(part.path)) as file:
        rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        groups: list[int] = []
        first = at = 0
        for group, num_rows in enumerate(rows):
            if at < part.end and part.start < at + num_rows:
                first = first if groups else at
                groups.append(group)
            at += num_rows
        for batch in file.iter_batches(batch_size=tables.BATCH_ROWS, row_groups=groups):
            start, end = max(first, part.start), min(first + batch.num_rows, part.end)
            if start < end:
                yield batch.slice(start - first, end - start)
            first += batch.num_rows
