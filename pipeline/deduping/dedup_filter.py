"""The rows of one span: each kept, held out, or rejected by a named rule."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.deduping.dedup_keys import EXACT, NEAR, Scratch, read_sides
from pipeline.deduping.firsts import rows_between
from pipeline.deduping.overlap import Counts, Overlap
from pipeline.deduping.spans import Span, read_span
from pipeline.tables import BATCH_ROWS, PAIRS, REJECTED
from pipeline.whole_file import whole_file

KEPT, HELD_OUT, OVERLAP = "kept", "held out", "overlap"
OUTCOMES = (KEPT, HELD_OUT, OVERLAP, NEAR, EXACT)
"""What becomes of a row, by code. Of rules that both reject a row, the later one is named."""


class FilterTask(NamedTuple):
    """A span, and which of its rows are held out."""

    span: Span
    held_out: tuple[int, ...]


class Filtering(NamedTuple):
    """What all tasks need to know."""

    out: Path
    scratch: Scratch
    later: Mapping[str, list[str]]
    """By rule the files of the rows that are there already."""
    overlap: Overlap


@dataclass(frozen=True)
class Counted:
    """What became of rows."""

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Rows by source and outcome."""
    overlap: Counts = field(default_factory=Counter)

    @classmethod
    def sum(cls, parts: Iterable["Counted"]) -> "Counted":
        """All together, sources in the order in which they come."""
        total = cls()
        for part in parts:
            total.rows.update(part.rows)
            total.overlap.update(part.overlap)
        return total


def filter_span(task: FilterTask, filtering: Filtering) -> Counted:
    """Write the rows of a span that are kept, and those that are rejected."""
    counted = Counted()
    codes = _judged(task, filtering, counted.overlap)
    names = pa.array(OUTCOMES, pa.string())
    at = 0
    with contextlib.ExitStack() as stack:
        name, scratch = f"part-{task.span.number:05d}.parquet", filtering.scratch.folder
        kept = stack.enter_context(_writer(filtering.out / name, PAIRS, scratch))
        rejected = stack.enter_context(
            _writer(filtering.out / "rejected" / name, REJECTED, scratch)
        )
        for batch in read_span(task.span):
            here = codes[at : at + batch.num_rows]
            outcomes = names.take(pa.array(here))
            counted.rows.update(_by_source(batch["source"], outcomes))
            _write(kept, batch, here == OUTCOMES.index(KEPT))
            judged = batch.append_column("rule", outcomes)
            _write(rejected, judged, here >= OUTCOMES.index(OVERLAP))
            at += batch.num_rows
    assert at == len(codes), "rows are lost"
    return counted


def _judged(task: FilterTask, filtering: Filtering, counts: Counts) -> npt.NDArray[np.int8]:
    """The outcome of each row, as a code; counts overlap, be a row rejected for it or another rule."""
    span = task.span
    codes = np.zeros(span.end - span.start, dtype=np.int8)
    is_held_out = np.zeros(len(codes), dtype=bool)
    is_held_out[np.array(task.held_out, dtype=np.int64) - span.start] = True
    if filtering.overlap.names:
        is_found, found = filtering.overlap.find(read_sides(filtering.scratch, "keys", span.number))
        for row, kinds in zip(np.flatnonzero(is_found), found, strict=True):
            if not is_held_out[row]:
                codes[row] = OUTCOMES.index(OVERLAP)
                counts.update(kinds)
    for rule, files in filtering.later.items():
        codes[_is_later(span, rule, files, filtering.scratch)] = OUTCOMES.index(rule)
    assert not codes[is_held_out].any(), "a row held out is the first with its source side"
    codes[is_held_out] = OUTCOMES.index(HELD_OUT)
    return codes


def _is_later(
    span: Span, rule: str, files: Iterable[str], scratch: Scratch
) -> npt.NDArray[np.bool_]:
    """Which rows have the key of an earlier one, in this span or before."""
    is_later: npt.NDArray[np.bool_] = np.load(scratch.path(rule, "repeated", span.number))
    for path in files:
        is_later[rows_between(path, span.start, span.end) - span.start] = True
    return is_later


def _by_source(sources: pa.Array, outcomes: pa.StringArray) -> Counter[tuple[str, str]]:
    table = pa.table({"source": sources.cast(pa.string()), "outcome": outcomes})
    grouped = table.group_by(["source", "outcome"], use_threads=False).aggregate(
        [([], "count_all")]
    )
    columns = (grouped[name].to_pylist() for name in ("source", "outcome", "count_all"))
    return Counter(
        {(source, outcome): number for source, outcome, number in zip(*columns, strict=True)}
    )


@contextlib.contextmanager
def _writer(path: Path, schema: pa.Schema, scratch: Path) -> Iterator[pq.ParquetWriter]:
    with (
        whole_file(path, scratch) as partial_path,
        pq.ParquetWriter(partial_path, schema, compression="zstd") as writer,
    ):
        yield writer


def _write(
    writer: pq.ParquetWriter, batch: pa.RecordBatch, is_wanted: npt.NDArray[np.bool_]
) -> None:
    wanted = batch.filter(pa.array(is_wanted))
    if wanted.num_rows:
        writer.write_batch(wanted.cast(writer.schema), row_group_size=BATCH_ROWS)
