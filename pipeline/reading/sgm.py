"""SGM, the markup of WMT's and IWSLT's test sets: two files of documents of segments.

It looks like XML and is none: `&` stands bare in the text, attributes may lack quotation marks, and
tags may be in capitals. Only `<doc>` and `<seg>` count; what stands outside segments is no text. One
level of character references is decoded. Document by document, both files must have the same
segments, for there is nothing else to align them by.
"""

import html
import re
from collections.abc import Iterator
from html.entities import html5
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.errors import CorpusError
from pipeline.reading.faults import MAX_RAW_BYTES, Chunk, Fault
from pipeline.reading.lines import MAX_LINE_BYTES, File, blocks, utf8_fault
from pipeline.reading.markup import one_line

_TAG = re.compile(rb"<(/?)(doc|seg)\b([^<>]*)>", re.IGNORECASE)
_ID = re.compile(rb"""\b(?:docid|id)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_MAX_ID_CHARS = 80
_NO_CHARACTER = "\ufffd"


def read_sgm(src: File, tgt: File, batch_rows: int) -> Iterator[Chunk]:
    """The pairs of two SGM files; `line` is the number of the segment, from 1.

    Raises:
        CorpusError: If a file holds no segment, a tag is missing, or the two do not have the same
            documents with as many segments each.
    """
    pairs = _paired(src.name, _segments(src), tgt.name, _segments(tgt))
    first = 1
    while batch := list(islice(pairs, batch_rows)):
        faults: list[Fault] = []
        numbers = range(first, first + len(batch))
        left, right = (
            [
                _text(pair[side], name, line, faults)
                for line, pair in zip(numbers, batch, strict=True)
            ]
            for side, name in enumerate((src.name, tgt.name))
        )
        columns = pa.array(left, pa.string()), pa.array(right, pa.string())
        yield Chunk(*columns, np.array(numbers, dtype=np.int64), faults)
        first += len(batch)


class _Segment(NamedTuple):
    document: int
    """From 1; 0 = before any."""
    document_id: str
    number: int
    """In the document, from 1."""
    raw: bytes
    byte: int


def _paired(
    src_name: str, src: Iterator[_Segment], tgt_name: str, tgt: Iterator[_Segment]
) -> Iterator[tuple[_Segment, _Segment]]:
    is_empty = True
    while True:
        left, right = next(src, None), next(tgt, None)
        if left is None and right is None:
            if is_empty:
                raise CorpusError(
                    f"`{src_name}` and `{tgt_name}` must hold segments (`<seg>` in `<doc>`), but hold "
                    "none. Check that they are SGM."
                )
            return
        is_empty = False
        if left is None or right is None or left.document != right.document:
            raise _unequal((src_name, left, src), (tgt_name, right, tgt))
        if left.document_id != right.document_id:
            raise CorpusError(
                f"Documents must have the same order in both files, but document {left.document} is "
                f"`{left.document_id}` in `{src_name}` and `{right.document_id}` in `{tgt_name}`."
            )
        yield left, right


def _unequal(*sides: tuple[str, _Segment | None, Iterator[_Segment]]) -> CorpusError:
    """Which document has more segments in one file; both have come to its end or are in it."""
    there = [segment for _, segment, _ in sides if segment]
    document = min(segment.document for segment in there)
    longer = next(segment for segment in there if segment.document == document)
    counts = []
    for name, segment, rest in sides:
        count = longer.number - 1
        if segment and segment.document == document:
            count += 1 + sum(1 for _ in _of_document(rest, document))
        counts.append(f"{count} in `{name}`")
    return CorpusError(
        "Each document must have as many segments in both files, but document "
        f"`{longer.document_id}` ({document}) has {' and '.join(counts)}. Mend it: there is "
        "nothing else to align them by."
    )


def _of_document(segments: Iterator[_Segment], document: int) -> Iterator[_Segment]:
    for segment in segments:
        if segment.document != document:
            return
        yield segment


def _segments(file: File) -> Iterator[_Segment]:
    """A file's segments in order, in bounded memory."""
    document, document_id, number = 0, "", 0
    opened: _Tag | None = None
    for tag in _tags(file):
        if opened and not (tag.name == b"seg" and tag.closes):
            raise _not_closed(file.name, document_id, number)
        if opened:
            yield _Segment(document, document_id, number, tag.before, opened.end)
            opened = None
        elif tag.name == b"seg" and not tag.closes:
            opened, number = tag, number + 1
        elif not tag.closes:
            document, document_id, number = document + 1, tag.id, 0
    if opened:
        raise _not_closed(file.name, document_id, number)


def _not_closed(name: str, document_id: str, number: int) -> CorpusError:
    return CorpusError(
        f"`{name}` must close each segment (`</seg>`), but does not close segment {number} of "
        f"document `{document_id}`. Mend it."
    )


class _Tag(NamedTuple):
    name: bytes
    closes: bool
    id: str
    before: bytes
    """What stands between the last tag and this one."""
    end: int
    """The byte after it, in the unpacked file."""


def _tags(file: File) -> Iterator[_Tag]:
    rest, offset = b"", 0
    for block in blocks(file):
        text, done = rest + block, 0
        for match in _TAG.finditer(text):
            slash, name, attributes = match.groups()
            before = text[done : match.start()]
            done = match.end()
            yield _Tag(name.lower(), bool(slash), _id(attributes), before, offset + done)
        rest, offset = text[done:], offset + done
        if len(rest) > MAX_LINE_BYTES:
            raise CorpusError(
                f"`{file.name}` must have segments of at most {MAX_LINE_BYTES:,} bytes, but the one "
                f"at byte {offset} is longer. Check that it is SGM."
            )


def _id(attributes: bytes) -> str:
    found = _ID.search(attributes)
    value = next((group for group in found.groups() if group is not None), b"") if found else b""
    return " ".join(value.decode(errors="backslashreplace").split())[:_MAX_ID_CHARS]


def _text(segment: _Segment, name: str, number: int, faults: list[Fault]) -> str:
    fault = utf8_fault(segment.raw, name, number, segment.byte, "segment")
    if fault:
        faults.append(fault._replace(raw=segment.raw[:MAX_RAW_BYTES]))
        return ""
    return one_line(_REFERENCE.sub(_decoded, segment.raw.decode())).strip(" ")


def _decoded(reference: re.Match[str]) -> str:
    """The character, or the reference as it is where it names none."""
    name = reference[0][1:]
    text = html.unescape(reference[0]) if name.startswith("#") else html5.get(name, reference[0])
    return reference[0] if _NO_CHARACTER in text or not text else text
