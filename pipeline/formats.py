"""Formats that hold both sides in one file, TSV and JSONL; and the reader of what `download` stores.

Lines are those of `corpus.py`: they end at a newline and nowhere else, in strict UTF-8, plain or
gzip. Every line is a pair. One that is not ends the reading, with its number: nothing is guessed,
and nothing dropped in silence.

TSV has no quoting: a quotation mark is text, and a line has one tab fewer than columns.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pipeline.config import Layout
from pipeline.corpus import read_lines, read_pairs
from pipeline.errors import CorpusError

PAIRS_FILE = "pairs"
"""In a stored corpus, the file of both sides; without it there are `src` and `tgt`."""
LAYOUT_FILE = "layout.json"
"""What to know to read `pairs`."""

Parse = Callable[[pa.StringArray, int], tuple[pa.StringArray, pa.StringArray]]
"""A batch of lines and the number of its first one, to both sides."""

_MAX_FAULTS_NAMED = 10
_MAX_KEYS_NAMED = 8


def read_corpus(folder: Path, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Reads a corpus that `download` stored, in whatever format.

    Args:
        folder: Holds `src` and `tgt`, or `pairs` and `layout.json`.
        names: What messages call the two files, or the one.

    Returns:
        Batches as of `corpus.read_pairs`.

    Raises:
        CorpusError: If the text is not what it must be.
    """
    layout = folder / LAYOUT_FILE
    if layout.exists():
        text = layout.read_text(encoding="utf-8")
        file = folder / PAIRS_FILE
        return read_rows(
            file, Layout.model_validate_json(text), name=names[0] if names else str(file)
        )
    src, tgt = names or (str(folder / "src"), str(folder / "tgt"))
    return read_pairs(folder / "src", folder / "tgt", names=(src, tgt))


def write_layout(folder: Path, layout: Layout) -> None:
    """Say how the folder's `pairs` is to be read."""
    text = layout.model_dump_json(indent=1)
    (folder / LAYOUT_FILE).write_text(f"{text}\n", encoding="utf-8", newline="\n")


def read_rows(
    file: Path, layout: Layout, batch_rows: int = 65_536, name: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads a file of both sides, plain or gzip.

    Returns:
        Batches of at most `batch_rows` rows: `src` and `tgt` (string), `line` (int64, in the file,
        from 1).

    Raises:
        CorpusError: as `read_lines`; or a line is no pair: another number of columns than the first
            one, broken JSON, a key missing, there twice, or not of text that UTF-8 can write.
    """
    return _rows(read_lines(file, batch_rows, name), layout, name or str(file))


def _rows(batches: Iterable[pa.StringArray], layout: Layout, name: str) -> Iterator[pa.RecordBatch]:
    line = 1
    parse: Parse | None = None
    for lines in batches:
        parse = parse or _parser(layout, lines[0].as_py(), name)
        if layout.header and line == 1:
            lines, line = lines.slice(1), 2  # noqa: PLW2901 - the header is no row
        if len(lines):
            src, tgt = parse(lines, line)
            numbers = pa.array(np.arange(line, line + len(lines), dtype=np.int64))
            yield pa.record_batch({"src": src, "tgt": tgt, "line": numbers})
        line += len(lines)
    if layout.header and line == 2:
        raise CorpusError(f"`{name}` has a header and nothing else: there are no pairs.")


def _parser(layout: Layout, first: str, name: str) -> Parse:
    """What takes the lines of one file apart; `first` is its first line."""
    if layout.format == "jsonl":
        return partial(_json_columns, keys=[str(key) for key in layout.columns], name=name)
    width = first.count("\t") + 1
    columns = [int(column) for column in layout.columns]
    if width <= max(columns):
        raise CorpusError(
            f"`{name}` must have a column {max(columns)} (from 0, between tabs) in every line, but "
            f"line 1 has {_plural(width, 'column')}. Mend it, or set `columns`."
        )
    return partial(_tsv_columns, columns=columns, width=width, name=name)


def _tsv_columns(
    lines: pa.StringArray, line: int, columns: Sequence[int], width: int, name: str
) -> tuple[pa.StringArray, pa.StringArray]:
    split = pc.split_pattern(lines, "\t")
    widths = split.value_lengths().to_numpy()
    wrong = np.flatnonzero(widths != width)
    if len(wrong):
        faults = [f"line {line + row} has {widths[row]}" for row in wrong.tolist()]
        raise CorpusError(
            f"`{name}` must have {_plural(width, 'column')} in every line, as in line 1, but "
            f"{_listed(faults)}. Mend or remove these lines; a tab is never part of the text."
        )
    cells = split.flatten()
    src, tgt = (cells.take(pa.array(np.arange(at, len(cells), width))) for at in columns)
    return src, tgt


def _json_columns(
    lines: pa.StringArray, line: int, keys: Sequence[str], name: str
) -> tuple[pa.StringArray, pa.StringArray]:
    """Arrow's parser where it takes every line, Python's where there is something to look at."""
    rows = _parse_at_once(lines, keys)
    if rows is not None:
        src, tgt = (rows.field(key) for key in keys)
        return src, tgt
    pairs, faults = [], []
    for number, text in enumerate(lines.to_pylist(), start=line):
        try:
            pairs.append(_json_pair(text, keys))
        except (ValueError, RecursionError) as error:
            faults.append(f"line {number} {_told(error)}")
    if faults:
        raise CorpusError(
            f"`{name}` must have a JSON object with texts `{keys[0]}` and `{keys[1]}` in every "
            f"line, but {_listed(faults)}. Mend or remove these lines, or set `columns`."
        )
    src, tgt = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    return src, tgt


def _parse_at_once(lines: pa.StringArray, keys: Sequence[str]) -> pa.StructArray | None:
    """The keys' texts, or none where any line is not beyond doubt; five times as fast as Python.

    Arrow's parser goes by brackets, not by lines. In an object of its own, a line can neither end
    early nor go on in the next one; only what follows its closing bracket could pass for a part.
    """
    if pc.any(pc.match_substring_regex(lines, r"\}\s*,\s*\"")).as_py():
        return None
    wrapped = pc.binary_join_element_wise('{"row":', lines, "}\n", "")
    _, _, text = wrapped.buffers()
    text = text.slice(0, pc.sum(pc.binary_length(wrapped)).as_py())
    row = pa.struct([pa.field(key, pa.string()) for key in keys])
    try:
        rows = pyarrow.json.read_json(
            pa.BufferReader(text),
            pyarrow.json.ReadOptions(use_threads=False, block_size=text.size + 1),
            pyarrow.json.ParseOptions(
                explicit_schema=pa.schema({"row": row}), unexpected_field_behavior="ignore"
            ),
        )["row"].combine_chunks()
    except pa.ArrowInvalid:
        return None
    assert len(rows) == len(lines), "a line is a row"
    nulls = rows.null_count + sum(rows.field(key).null_count for key in keys)
    return None if nulls else rows


# Objects as tuples of (key, value), so that a key given twice is seen. Arrays are lists.
_DECODER = json.JSONDecoder(object_pairs_hook=tuple)


def _json_pair(text: str, keys: Sequence[str]) -> tuple[str, str]:
    """Both sides in one line.

    Raises:
        ValueError: If they are not there; the message goes on after `line 7`.
    """
    row = _DECODER.decode(text)
    if not isinstance(row, tuple):
        raise ValueError("is no JSON object")  # noqa: TRY004 - the text is wrong, not the call
    src, tgt = (_json_text(row, key) for key in keys)
    return src, tgt


def _json_text(row: tuple[tuple[str, object], ...], key: str) -> str:
    found = [value for name, value in row if name == key]
    if not found:
        keys = ", ".join(f"`{name}`" for name, _ in row[:_MAX_KEYS_NAMED]) or "none"
        raise ValueError(f"has no `{key}` (its keys: {keys})")
    if len(found) > 1:
        raise ValueError(f"has `{key}` twice")
    text = found[0]
    if not isinstance(text, str):
        raise ValueError(f"has a `{key}` that is no text")  # noqa: TRY004
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"has half of a surrogate pair in `{key}`, which is no character")
    return text


def _told(error: Exception) -> str:
    """What is wrong with a line, after its number."""
    if isinstance(error, json.JSONDecodeError):
        return f"is no JSON ({error.msg}, character {error.pos + 1})"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return str(error)


def _listed(faults: Sequence[str]) -> str:
    rest = len(faults) - _MAX_FAULTS_NAMED
    more = f"; and {rest} more, or still more further on" if rest > 0 else ""
    return "; ".join(faults[:_MAX_FAULTS_NAMED]) + more


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
