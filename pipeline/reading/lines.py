"""One text file as lines, in bounded memory; and what every reader asks of a file first.

A line ends at a newline (LF) and nowhere else; one carriage return (CR) before it goes with it. Text
is strict UTF-8: a line that is not is empty in what is read, and told as a fault. Files may be packed
(`packed.py`): text called `.gz` is read as text, and gzip without an ending is unpacked.
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import CorpusError
from pipeline.fetching.packed import open_unpacked, packing
from pipeline.reading.faults import MAX_RAW_BYTES, Fault

MAX_LINE_BYTES = 4 * 2**20
"""A longer line ends the reading. Lines of a megabyte are read, and dropped by a rule; a line
without an end, such as a few kilobytes of gzip that unpack to gigabytes, is never held whole."""

BATCH_ROWS = 65_536

_BLOCK_BYTES = 2**20
_PENDING_BYTES = (
    32 * 2**20
)  # text read ahead and not yet taken, so that long lines make short batches
_HEAD_BYTES = 512

_UTF8_BOM = b"\xef\xbb\xbf"
# First bytes of what is not text -> what it is. UTF-32's mark begins with UTF-16's.
_UTF16 = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_SIGNATURES = {b"PK\x03\x04": "a zip archive", b"PAR1": "Parquet"}
_TAR_MAGIC = slice(257, 262)


class File(NamedTuple):
    """A file of a corpus, which can be opened."""

    path: Path
    name: str
    """What messages call it."""


def checked(path: Path, name: str | None = None) -> File:
    """A file that can be opened, or CorpusError."""
    name = name or str(path)
    if path.is_dir():
        raise CorpusError(f"`{name}` must be a file, but is a folder. Name the file in it.")
    if not path.exists():
        raise CorpusError(f"`{name}` does not exist. Check the path.")
    if not path.is_file():  # a pipe or a device: opening it could wait for ever
        raise CorpusError(f"`{name}` must be a regular file, but is not. Copy it to a file first.")
    try:
        path.open("rb").close()
    except OSError as error:
        raise CorpusError(
            f"`{name}` cannot be opened: {error.strerror}. Make it readable for this user."
        ) from None
    return File(path, name)


class Lines(NamedTuple):
    """Some lines of a file, without their ends."""

    texts: pa.StringArray
    """A line with a fault is empty."""
    first: int
    """The number of the first one, from 1."""
    faults: list[Fault]


def read_lines(file: File, batch_rows: int = BATCH_ROWS) -> Iterator[Lines]:
    """Reads a whole file: never an empty batch.

    Raises:
        CorpusError: If the file has no line, has one over `MAX_LINE_BYTES`, or is no text at all.
    """
    assert batch_rows > 0
    with closing(LineReader(file)) as reader:
        reader.fill(batch_rows)
        if not reader.num_pending:
            raise CorpusError(f"`{file.name}` is empty: there are no pairs. Check the path.")
        while reader.num_pending:
            yield reader.take(min(batch_rows, reader.num_pending))
            reader.fill(batch_rows)


class LineReader:
    """One file: lines read ahead, and what is worth telling about it in an error."""

    def __init__(self, file: File) -> None:
        self.name = file.name
        self.num_lines = 0
        self.num_lone_cr = 0
        self.num_pending = 0
        self._num_taken = 0
        self._pending: deque[pa.Array] = deque()
        self._pending_bytes = 0
        self._faults: deque[Fault] = deque()
        self._texts = _whole_lines(file, self._faults)

    def fill(self, rows: int) -> None:
        """Reads on until `rows` lines are pending, the file ends, or it is too much to hold."""
        while self.num_pending < rows and self._pending_bytes < _PENDING_BYTES:
            lines = self._next_lines()
            if lines is None:
                return
            self._pending.append(lines)
            self.num_pending += len(lines)
            self._pending_bytes += lines.nbytes

    def take(self, rows: int) -> Lines:
        """Takes the first `rows` pending lines."""
        parts, missing = [], rows
        while missing:
            lines = self._pending.popleft()
            self._pending_bytes -= lines.nbytes
            if len(lines) > missing:
                rest = lines.slice(missing)
                self._pending.appendleft(rest)
                self._pending_bytes += rest.nbytes
                lines = lines.slice(0, missing)
            parts.append(lines)
            missing -= len(lines)
        first = self._num_taken + 1
        self.num_pending -= rows
        self._num_taken += rows
        faults = []
        while self._faults and self._faults[0].line <= self._num_taken:
            faults.append(self._faults.popleft())
        return Lines(parts[0] if len(parts) == 1 else pa.concat_arrays(parts), first, faults)

    def rest_is_blank(self) -> bool:
        """Reads to the end; whether no line that nobody took holds more than white space."""
        is_blank = all(_all_blank(lines) for lines in self._pending)
        while (lines := self._next_lines()) is not None:
            is_blank = is_blank and _all_blank(lines)
        return is_blank and not self._faults

    def close(self) -> None:
        """Closes the file."""
        self._texts.close()

    def _next_lines(self) -> pa.Array | None:
        lines = next(self._texts, None)
        if lines is not None:
            self.num_lines += len(lines.texts)
            self.num_lone_cr += lines.num_lone_cr
        return None if lines is None else lines.texts


class _Piece(NamedTuple):
    texts: pa.StringArray
    num_lone_cr: int


def _whole_lines(file: File, faults: deque[Fault]) -> Generator[_Piece]:
    """The lines of a file piece by piece; faults are added as they are found."""
    carry, line, offset = b"", 1, 0
    for block in blocks(file):
        text = carry + block
        _check_line_length(text, file.name, line)
        end = text.rfind(b"\n") + 1
        text, carry = text[:end], text[end:]
        if text:
            piece = _piece(text, file.name, line, offset, faults)
            yield piece
            line += len(piece.texts)
            offset += len(text)
    if carry and not (offset == 0 and carry == _UTF8_BOM):
        yield _piece(carry, file.name, line, offset, faults)


def _piece(text: bytes, name: str, line: int, offset: int, faults: deque[Fault]) -> _Piece:
    lines = text.removeprefix(_UTF8_BOM) if offset == 0 else text
    num_lone_cr = 0
    if b"\r" in lines:
        lines = lines.replace(b"\r\n", b"\n")
        num_lone_cr = lines.count(b"\r")
    texts = _split(lines)
    try:
        texts.validate(full=True)  # refuses overlong forms and surrogates (CESU-8) too
    except pa.ArrowInvalid:
        found = list(_utf8_faults(text, name, line, offset))
        assert found, "Arrow refuses what Python takes"
        faults.extend(found)
        is_good = np.ones(len(texts), dtype=bool)
        is_good[[fault.line - line for fault in found]] = False
        texts = pc.if_else(pa.array(is_good), texts.cast(pa.binary()), b"").cast(pa.string())
    return _Piece(texts, num_lone_cr)


def _split(text: bytes) -> pa.StringArray:
    """The lines of a piece of text, without their ends, not yet checked."""
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n"))
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    joined = pa.py_buffer(text.replace(b"\n", b""))
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), joined)


def _utf8_faults(text: bytes, name: str, line: int, offset: int) -> Iterator[Fault]:
    """The first fault of each line."""
    for row in text.split(b"\n"):
        fault = utf8_fault(row, name, line, offset)
        if fault:
            yield fault
        line += 1
        offset += len(row) + 1


def utf8_fault(
    raw: bytes, name: str, line: int, offset: int | None, unit: str = "line"
) -> Fault | None:
    """What is not UTF-8 in a row's bytes, which begin at `offset` of the file."""
    try:
        raw.decode()  # Python's decoder is as strict as Arrow's, and says where
    except UnicodeDecodeError as error:
        found = raw[error.start : error.end].hex(" ").upper()
        byte = None if offset is None else offset + error.start
        what = f"is not UTF-8 ({found}: {error.reason})"
        return Fault(name, line, byte, "encoding", what, raw[:MAX_RAW_BYTES], unit)
    return None


def blocks(file: File, *, any_encoding: bool = False) -> Generator[bytes]:
    """The unpacked bytes of a file, whose beginning looks like text.

    Args:
        file: Packed or not.
        any_encoding: Whether the caller finds out by itself how its text is encoded.
    """
    with open_unpacked(file.path, file.name) as unpacked:
        block = unpacked.read(_BLOCK_BYTES)
        _check_head(block[:_HEAD_BYTES], file.name, any_encoding)
        while block:
            yield block
            block = unpacked.read(_BLOCK_BYTES)


def _all_blank(lines: pa.Array) -> bool:
    return pc.all(pc.equal(pc.utf8_trim_whitespace(lines), "")).as_py() is not False


def _check_head(head: bytes, name: str, any_encoding: bool) -> None:
    signatures = _SIGNATURES if any_encoding else _UTF16 | _SIGNATURES
    kind = next((kind for magic, kind in signatures.items() if head.startswith(magic)), None)
    if inner := packing(head):
        kind = f"a file packed twice ({inner} inside)"
    if head[_TAR_MAGIC] == b"ustar":
        kind = "a tar archive"
    # Without a mark, UTF-16 shows by zeros in every second byte.
    uneven = abs(head[::2].count(0) - head[1::2].count(0))
    if kind is None and not any_encoding and uneven > 4 + len(head) // 8:
        kind = "UTF-16 without a byte order mark"
    if kind is not None:
        is_archive = kind.endswith("archive")
        advice = "Name the file in it with `member`." if is_archive else "Convert it first."
        raise CorpusError(
            f"`{name}` must be UTF-8 text, plain or packed, but looks like {kind}. {advice}"
        )


def _check_line_length(text: bytes, name: str, line: int) -> None:
    # Only the first line of a piece reaches back before its last block; others are shorter.
    end = text.find(b"\n")
    if (len(text) if end < 0 else end) > MAX_LINE_BYTES:
        raise CorpusError(
            f"`{name}`, line {line}: a line must have at most {MAX_LINE_BYTES:,} bytes, but this "
            "one is longer. Check that the file is text with one sentence per line."
        )
