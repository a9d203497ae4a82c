"""JSONL: one JSON object a line, both sides under keys of it."""

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pipeline.reading.faults import MAX_RAW_BYTES, Chunk, Fault
from pipeline.reading.lines import File, Lines, read_lines
from pipeline.sources import Layout

_MAX_KEYS_NAMED = 8


def read_jsonl(file: File, layout: Layout, batch_rows: int) -> Iterator[Chunk]:
    """The rows of a JSONL file. No object of two texts, or a key twice, is a fault.

    Raises:
        CorpusError: as `read_lines`.
    """
    keys = [str(key) for key in layout.columns or ("src", "tgt")]
    for lines in read_lines(file, batch_rows):
        yield _chunk(lines, keys, file.name)


def _chunk(lines: Lines, keys: Sequence[str], name: str) -> Chunk:
    """Arrow's parser where it takes every line, Python's where there is something to look at."""
    numbers = np.arange(lines.first, lines.first + len(lines.texts), dtype=np.int64)
    rows = None if lines.faults else _parse_at_once(lines.texts, keys)
    if rows is not None:
        src, tgt = (rows.field(key) for key in keys)
        return Chunk(src, tgt, numbers)
    faults, pairs = list(lines.faults), []
    for number, text in zip(numbers.tolist(), lines.texts.to_pylist(), strict=True):
        pair = ("", "")
        try:
            pair = _json_pair(text, keys)
        except (ValueError, RecursionError) as error:
            raw = text[:MAX_RAW_BYTES].encode()[:MAX_RAW_BYTES]
            faults.append(Fault(name, number, None, "json", _told(error), raw))
        pairs.append(pair)
    src, tgt = (pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1))
    return Chunk(src, tgt, numbers, faults)


def _parse_at_once(lines: pa.StringArray, keys: Sequence[str]) -> pa.StructArray | None:
    """The keys' texts, or none where any line is not beyond doubt; five times as fast as Python.

    Arrow's parser goes by brackets, not by lines. In an array of its own, in an object of its own, a
    line can neither end early nor go on in the next one, nor be two objects. Only one that closes
    these brackets itself could pass for less than it is.
    """
    if pc.any(pc.match_substring_regex(lines, r"\}\s*\]\s*[,}]")).as_py():
        return None
    wrapped = pc.binary_join_element_wise('{"row":[', lines, "]}\n", "")
    _, _, text = wrapped.buffers()
    text = text.slice(0, pc.sum(pc.binary_length(wrapped)).as_py())
    row = pa.list_(pa.struct([pa.field(key, pa.string()) for key in keys]))
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
    if len(rows) != len(lines) or not pc.all(pc.equal(rows.value_lengths(), 1)).as_py():
        return None
    objects = rows.flatten()
    nulls = objects.null_count + sum(objects.field(key).null_count for key in keys)
    return None if nulls or len(objects) != len(lines) else objects


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
        keys = ", ".join(f"`{_shown(name)}`" for name, _ in row[:_MAX_KEYS_NAMED]) or "none"
        raise ValueError(f"has no `{key}` (its keys: {keys})")
    if len(found) > 1:
        raise ValueError(f"has `{key}` twice")
    text = found[0]
    if not isinstance(text, str):
        raise ValueError(f"has a `{key}` that is no text")  # noqa: TRY004
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"has half of a surrogate pair in `{key}`, which is no character")
    return text


def _shown(name: str) -> str:
    return name[:40].encode(errors="backslashreplace").decode()


def _told(error: Exception) -> str:
    """What is wrong with a line, after its number."""
    if isinstance(error, json.JSONDecodeError):
        return f"is no JSON ({error.msg}, character {error.pos + 1})"
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return str(error)
