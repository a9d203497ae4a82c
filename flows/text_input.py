"""Texts to translate: lines of text, JSONL or Parquet, from files or standard input."""

import json
import sys
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from pipeline.errors import CorpusError
from pipeline.fetching.packed import open_unpacked
from pipeline.reading.lines import MAX_LINE_BYTES, checked
from pipeline.tables import open_parquet

DEFAULT_FIELD = "src"
_PARQUET_ROWS = 4_096


def read_texts(files: Sequence[Path], field: str | None) -> Iterator[str]:
    """Texts of files in order, or of standard input where there are none.

    Args:
        files: `.jsonl` and `.parquet` hold a text per row; others, which may be packed, per line.
        field: The key or column of the text; none = `src`. With one, standard input is JSONL.

    Raises:
        CorpusError: At a file that cannot be read, or at a row without a text.
    """
    if not files:
        yield from _rows(sys.stdin.buffer, "standard input", field)
    for path in files:
        yield from _read_file(path, field or DEFAULT_FIELD)


def _read_file(path: Path, field: str) -> Iterator[str]:
    if path.suffix == ".parquet":
        yield from _read_parquet(path, field)
        return
    is_jsonl = ".jsonl" in path.suffixes[-2:]
    try:
        with open_unpacked(path) as unpacked:
            yield from _rows(unpacked, str(path), field if is_jsonl else None)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None


def _rows(lines: BinaryIO | BufferedIOBase, name: str, field: str | None) -> Iterator[str]:
    number = 0
    # One byte more than is allowed, so that a line without an end is never held whole.
    while raw := lines.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            raise CorpusError(
                f"{name}, line {number}: a line must have at most {MAX_LINE_BYTES:,} bytes, but "
                "this one is longer. Check that it is text, a sentence a line."
            )
        text = _decoded(raw.rstrip(b"\r\n"), name, number)
        yield text if field is None else _json_text(text, name, number, field)


def _decoded(raw: bytes, name: str, number: int) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{name} must be UTF-8, but line {number} is not, at byte {error.start} of the line."
        ) from None


def _json_text(line: str, name: str, number: int, field: str) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deeply"
        raise CorpusError(f"{name} must be JSONL, but line {number} is no JSON: {why}.") from None
    text = row.get(field) if isinstance(row, dict) else None
    if not isinstance(text, str):
        there = ", ".join(f"`{key}`" for key in list(row)[:8]) if isinstance(row, dict) else ""
        raise CorpusError(
            f"{name}, line {number} must be an object with a text `{field}`, but has "
            f"{there or 'none'}. Name the key with --field."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CorpusError(
            f"{name}, line {number} has half of a surrogate pair in `{field}`: it is no text."
        ) from None
    return text


def _read_parquet(path: Path, column: str) -> Iterator[str]:
    number = 0
    try:
        with open_parquet(checked(path).path) as parquet:
            _check_column(parquet.schema_arrow, column, path)
            for batch in parquet.iter_batches(_PARQUET_ROWS, columns=[column], use_threads=False):
                for text in batch.column(0).to_pylist():
                    number += 1
                    if text is None:
                        raise CorpusError(f"{path}, row {number} has no `{column}` (null).")
                    yield text
    except UnicodeDecodeError:
        raise CorpusError(f"{path} must be UTF-8, but a row from {number + 1} on is not.") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise CorpusError(
            f"{path} must be a whole Parquet file, but is damaged: {reason}"
        ) from None


def _check_column(schema: pa.Schema, column: str, path: Path) -> None:
    if column not in schema.names:
        there = ", ".join(f"`{name}`" for name in schema.names[:8])
        raise CorpusError(
            f"{path} must have a column `{column}`, but has {there}. Name the column with --field."
        )
    kind = schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise CorpusError(f"{path} must hold text in its column `{column}`, but that is {kind}.")
