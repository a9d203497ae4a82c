"""TSV: columns between tabs, without quoting. A quotation mark is text, and a tab never is.

All rows have as many columns as most of the first ones have; another number is a fault.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import CorpusError
from pipeline.reading.faults import MAX_RAW_BYTES, Chunk, Fault
from pipeline.reading.lines import File, Lines, read_lines
from pipeline.sources import Layout


def read_tsv(file: File, layout: Layout, batch_rows: int) -> Iterator[Chunk]:
    """The rows of a TSV file.

    Raises:
        CorpusError: as `read_lines`; or no row has the columns, or there is no row but a header.
    """
    columns = [int(column) for column in layout.columns or (0, 1)]
    width = 0
    for batch in read_lines(file, batch_rows):
        lines = _without_header(batch) if layout.header and batch.first == 1 else batch
        if len(lines.texts):
            width = width or _width(lines, columns, file.name)
            yield _chunk(lines, columns, width, file.name)
    if not width:
        raise CorpusError(f"`{file.name}` has a header and nothing else: there are no pairs.")


def _without_header(lines: Lines) -> Lines:
    return Lines(lines.texts.slice(1), 2, [fault for fault in lines.faults if fault.line > 1])


def _width(lines: Lines, columns: Sequence[int], name: str) -> int:
    """The most frequent number of columns, of those that are enough; the smallest of equals."""
    widths = _widths(pc.split_pattern(lines.texts, "\t"))
    counts = np.bincount(widths)
    counts[: max(columns) + 1] = 0
    if not counts.any() and lines.faults:
        return max(columns) + 1  # those are told first
    if not counts.any():
        raise CorpusError(
            f"`{name}` must have a column {max(columns)} (from 0, between tabs) in every line, but "
            f"line {lines.first} has {_plural(widths[0], 'column')}. Mend it, or set `columns`."
        )
    return int(np.argmax(counts))


def _chunk(lines: Lines, columns: Sequence[int], width: int, name: str) -> Chunk:
    split = pc.split_pattern(lines.texts, "\t")
    widths = _widths(split)
    wrong = np.flatnonzero(widths != width)
    faults = list(lines.faults)
    for row in wrong.tolist():
        what = f"has {_plural(widths[row], 'column')}, not {width}"
        raw = lines.texts[row].as_py().encode()[:MAX_RAW_BYTES]
        faults.append(Fault(name, lines.first + row, None, "columns", what, raw))
    if len(wrong):
        is_right = pa.array(widths == width)
        split = pc.split_pattern(pc.if_else(is_right, lines.texts, "\t" * (width - 1)), "\t")
    cells = split.flatten()
    src, tgt = (cells.take(pa.array(np.arange(at, len(cells), width))) for at in columns)
    numbers = np.arange(lines.first, lines.first + len(lines.texts), dtype=np.int64)
    return Chunk(src, tgt, numbers, faults)


def _widths(split: pa.ListArray) -> npt.NDArray[np.int64]:
    return np.asarray(split.value_lengths().to_numpy(), dtype=np.int64)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
