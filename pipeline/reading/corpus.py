"""Two aligned text files: line n of one is the translation of line n of the other.

Rows are pairs from the first read on, so that nothing later can shift them.

Format `ted`: as IWSLT's `train.tags.*` files, where lines of metadata stand between the sentences,
on both sides alike. They are left out.
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import CorpusError
from pipeline.reading.drift import Drift
from pipeline.reading.faults import MAX_RAW_BYTES, Chunk, Fault, Faults
from pipeline.reading.lines import BATCH_ROWS, File, LineReader, checked

_TAG_PATTERN = (
    r"^\s*<(?P<open>url|talkid|title|description|keywords|speaker|reviewer|translator)\b[^>]*>"
    r".*</(?P<close>[a-z]+)>\s*$|^\s*<(?P<doc>/?doc)\b[^>]*>\s*$"
)


def read_pairs(
    src: Path,
    tgt: Path,
    batch_rows: int = BATCH_ROWS,
    names: tuple[str, str] | None = None,
    faults: Faults | None = None,
) -> Iterator[pa.RecordBatch]:
    """Reads two aligned files, plain or packed, line by line together.

    Args:
        src: The source side.
        tgt: The target side.
        batch_rows: The most rows of a batch; at least 1.
        names: What messages call the two files, where a user knows them by other names.
        faults: What becomes of lines that are not UTF-8; none = the reading stops.

    Returns:
        Batches of at most `batch_rows` rows (fewer where lines are long): `src` and `tgt` (string,
        as written but for the line end and a byte order mark), `line` (int64, from 1).

    Raises:
        CorpusError: a file is missing, a folder, unreadable, given twice, damaged, not UTF-8, or
            has a line over `MAX_LINE_BYTES`; the two have no line, or not the same number of them.
            What is wrong with the paths is raised at once, the rest while reading, perhaps after
            batches were given out: none is final before the last.
    """
    files = two_files(src, tgt, names)
    return (faults or Faults()).sift(read_aligned(*files, batch_rows))


def two_files(src: Path, tgt: Path, names: tuple[str, str] | None = None) -> tuple[File, File]:
    """Two different files that can be opened, or CorpusError."""
    src_name, tgt_name = names or (None, None)
    files = checked(src, src_name), checked(tgt, tgt_name)
    if src.samefile(tgt):
        raise CorpusError(
            f"`{files[0].name}` is given as both source and target. Name a file for each language."
        )
    return files


def read_aligned(src: File, tgt: File, batch_rows: int = BATCH_ROWS) -> Iterator[Chunk]:
    """Every line of two aligned files.

    Raises:
        CorpusError: as `read_pairs`, but for single lines.
    """
    assert batch_rows > 0
    with closing(LineReader(src)) as src_lines, closing(LineReader(tgt)) as tgt_lines:
        yield from _paired(src_lines, tgt_lines, batch_rows)
        ends_are_blank = all([src_lines.rest_is_blank(), tgt_lines.rest_is_blank()])  # reads both
    if src_lines.num_lines != tgt_lines.num_lines:
        parted = _where_they_part(src, tgt)
        raise CorpusError(_unequal(src_lines, tgt_lines, ends_are_blank) + parted)
    if src_lines.num_lines == 0:
        raise CorpusError(
            f"`{src.name}` and `{tgt.name}` are empty: there are no pairs. Check the paths."
        )


def read_ted(src: File, tgt: File, batch_rows: int = BATCH_ROWS) -> Iterator[Chunk]:
    """Aligned text without the lines of metadata that both sides have.

    A line that only one side has as metadata, or with another tag, is a fault.

    Raises:
        CorpusError: as `read_aligned`.
    """
    for chunk in read_aligned(src, tgt, batch_rows):
        yield _without_tags(chunk, src.name, tgt.name)


def _paired(src: LineReader, tgt: LineReader, batch_rows: int) -> Iterator[Chunk]:
    while True:
        src.fill(batch_rows)
        tgt.fill(batch_rows)
        rows = min(batch_rows, src.num_pending, tgt.num_pending)
        if rows == 0:
            return
        left, right = src.take(rows), tgt.take(rows)
        numbers = np.arange(left.first, left.first + rows, dtype=np.int64)
        yield Chunk(left.texts, right.texts, numbers, [*left.faults, *right.faults])


def _without_tags(chunk: Chunk, src_name: str, tgt_name: str) -> Chunk:
    src_tags, tgt_tags = _tags(chunk.src), _tags(chunk.tgt)
    faulty = {fault.line for fault in chunk.faults}
    faults, left_out = list(chunk.faults), set()
    for row in sorted(src_tags.keys() | tgt_tags.keys()):
        line = int(chunk.line[row])
        src_tag, tgt_tag = src_tags.get(row), tgt_tags.get(row)
        if src_tag == tgt_tag:
            left_out.add(row)
        elif line not in faulty:
            name, tags = (src_name, chunk.src) if src_tag else (tgt_name, chunk.tgt)
            what = f"is metadata (<{src_tag or tgt_tag}>), but not on the other side"
            raw = tags[row].as_py().encode()[:MAX_RAW_BYTES]
            faults.append(Fault(name, line, None, "metadata", what, raw))
    stays = np.ones(len(chunk.line), dtype=bool)
    stays[list(left_out)] = False
    src, tgt = (side.filter(pa.array(stays)) for side in (chunk.src, chunk.tgt))
    counts = {"metadata": len(left_out)} if left_out else {}
    return Chunk(src, tgt, chunk.line[stays], faults, counts)


def _tags(lines: pa.StringArray) -> dict[int, str]:
    """Rows that are metadata, and their tag."""
    candidates = np.flatnonzero(pc.match_substring_regex(lines, r"^\s*</?[a-z]+").to_numpy(False))
    found = pc.extract_regex(lines.take(pa.array(candidates)), _TAG_PATTERN)
    tags = {}
    for row, match in zip(candidates.tolist(), found.to_pylist(), strict=True):
        if match and match["open"] == match["close"]:
            tags[row] = match["open"] or match["doc"]
    return tags


def _unequal(src: LineReader, tgt: LineReader, ends_are_blank: bool) -> str:
    short, long = sorted((src, tgt), key=lambda side: side.num_lines)
    hint = ""
    if ends_are_blank:
        extra = long.num_lines - short.num_lines
        blank = "extra line is blank" if extra == 1 else f"{extra} extra lines are blank"
        hint = f" The {blank}: remove from the end of `{long.name}` what is no translation."
    if short.num_lone_cr:
        hint += (
            f" `{short.name}` has {short.num_lone_cr} carriage returns (CR) without a newline: "
            "if they are its line ends, convert them to newlines."
        )
    return (
        f"Line n of one file must be the translation of line n of the other, but `{src.name}` has "
        f"{src.num_lines} lines and `{tgt.name}` has {tgt.num_lines}.{hint}"
    )


def _where_they_part(src: File, tgt: File) -> str:
    """From which line on the two look shifted, where that is clear: both are read once more."""
    drift = Drift()
    with closing(LineReader(src)) as src_lines, closing(LineReader(tgt)) as tgt_lines:
        for chunk in _paired(src_lines, tgt_lines, BATCH_ROWS):
            drift.update(chunk.src, chunk.tgt, chunk.line)
    shifts = drift.shifts()
    if not shifts:
        return ""
    return f" They seem to part at about line {shifts[0].first_line:,}: look there first."
