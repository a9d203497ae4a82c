"""Readers of parallel text: two files in, rows (src, tgt, line) out, in bounded memory.

Rows are pairs from the first read on. A line ends at a newline (LF) and nowhere else; one
carriage return (CR) before it goes with it. Text is strict UTF-8. Whether a file is gzip is told by
its first bytes, never by its name: text called `.gz` is read as text, and gzip without an ending is
unpacked.

Another compression is another branch of `_unpacked`. Formats of one file are in `formats.py`, on top
of `read_lines`.
"""

import gzip
import zlib
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import CorpusError, TradukoError

MAX_LINE_BYTES = 4 * 2**20
"""A longer line ends the reading. Lines of a megabyte are read, and dropped by a rule; a line
without an end, such as a few kilobytes of gzip that unpack to gigabytes, is never held whole."""

_BLOCK_BYTES = 2**20
_PENDING_BYTES = 32 * 2**20  # unpaired text held per side, so that long lines make short batches
_MAX_FAULTS_NAMED = 10
_HEAD_BYTES = 512

_UTF8_BOM = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
# First bytes of what is not text -> what it is. UTF-32's mark begins with UTF-16's.
_SIGNATURES = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    _GZIP_MAGIC: "gzip inside gzip",
    b"PK\x03\x04": "a zip archive",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_TAR_MAGIC = slice(257, 262)


def read_pairs(
    src: Path, tgt: Path, batch_rows: int = 65_536, names: tuple[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads two aligned files, plain or gzip, line by line together.

    Args:
        src: The source side.
        tgt: The target side.
        batch_rows: The most rows of a batch; at least 1.
        names: What messages call the two files, where a user knows them by other names.

    Returns:
        Batches of at most `batch_rows` rows (fewer where lines are long): `src` and `tgt` (string,
        as written but for the line end and a byte order mark), `line` (int64, from 1).

    Raises:
        CorpusError: a file is missing, a folder, unreadable, given twice, damaged, not UTF-8, or
            has a line over `MAX_LINE_BYTES`; the two have no line, or not the same number of them.
            What is wrong with the paths is raised at once, the rest while reading, perhaps after
            batches were given out: none is final before the last.
    """
    assert batch_rows > 0
    src_name, tgt_name = names or (str(src), str(tgt))
    files = _File(src, src_name), _File(tgt, tgt_name)
    for file in files:
        _check_path(file)
    if src.samefile(tgt):
        raise CorpusError(
            f"`{src_name}` is given as both source and target. Name a file for each language."
        )
    return _paired(_Side(files[0]), _Side(files[1]), batch_rows)


def read_lines(
    file: Path, batch_rows: int = 65_536, name: str | None = None
) -> Iterator[pa.StringArray]:
    """Reads one file, plain or gzip, by the same rules: never an empty batch.

    Raises:
        CorpusError: as `read_pairs`, but for what concerns two files; or the file has no line.
    """
    assert batch_rows > 0
    source = _File(file, name or str(file))
    _check_path(source)
    return _lines(_Side(source), batch_rows)


class _File(NamedTuple):
    path: Path
    name: str  # in messages


def _paired(src: "_Side", tgt: "_Side", batch_rows: int) -> Iterator[pa.RecordBatch]:
    line = 1
    with closing(src), closing(tgt):
        while True:
            src.fill(batch_rows)
            tgt.fill(batch_rows)
            rows = min(batch_rows, src.num_pending, tgt.num_pending)
            if rows == 0:
                break
            lines = pa.array(np.arange(line, line + rows, dtype=np.int64))
            columns = {"src": src.take(rows), "tgt": tgt.take(rows), "line": lines}
            yield pa.record_batch(columns)
            line += rows
        _check_counts(src, tgt)


def _lines(side: "_Side", batch_rows: int) -> Iterator[pa.StringArray]:
    with closing(side):
        side.fill(batch_rows)
        if not side.num_pending:
            raise CorpusError(f"`{side.name}` is empty: there are no pairs. Check the path.")
        while side.num_pending:
            yield side.take(min(batch_rows, side.num_pending))
            side.fill(batch_rows)


class _Side:
    """One file of a pair: lines read ahead, and what is worth telling about it in an error."""

    def __init__(self, file: _File) -> None:
        self.name = file.name
        self.num_lines = 0
        self.num_lone_cr = 0
        self.num_pending = 0
        self._pending: deque[pa.Array] = deque()
        self._pending_bytes = 0
        self._texts = _whole_lines(file)

    def fill(self, rows: int) -> None:
        """Reads on until `rows` lines are pending, the file ends, or it is too much to hold."""
        while self.num_pending < rows and self._pending_bytes < _PENDING_BYTES:
            lines = self._next_lines()
            if lines is None:
                return
            self._pending.append(lines)
            self.num_pending += len(lines)
            self._pending_bytes += lines.nbytes

    def take(self, rows: int) -> pa.Array:
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
        self.num_pending -= rows
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def rest_is_blank(self) -> bool:
        """Reads to the end; whether no line that nobody took holds more than white space."""
        is_blank = all(_all_blank(lines) for lines in self._pending)
        while (lines := self._next_lines()) is not None:
            is_blank = is_blank and _all_blank(lines)
        return is_blank

    def close(self) -> None:
        """Closes the file."""
        self._texts.close()

    def _next_lines(self) -> pa.Array | None:
        text = next(self._texts, None)
        if text is None:
            return None
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
            self.num_lone_cr += text.count(b"\r")
        lines = _split(text)
        self.num_lines += len(lines)
        return lines


def _whole_lines(file: _File) -> Generator[bytes]:
    """Valid UTF-8 in pieces of whole lines; only the last piece may lack its newline."""
    carry, line, offset = b"", 1, 0
    for block in _blocks(file):
        text = carry + block
        _check_line_length(text, file.name, line)
        end = text.rfind(b"\n") + 1
        text, carry = text[:end], text[end:]
        if text:
            _check_utf8(text, file.name, line, offset)
            yield text.removeprefix(_UTF8_BOM) if offset == 0 else text
            line += text.count(b"\n")
            offset += len(text)
    if carry:
        _check_utf8(carry, file.name, line, offset)
        if text := carry.removeprefix(_UTF8_BOM) if offset == 0 else carry:
            yield text


def _blocks(file: _File) -> Generator[bytes]:
    """The unpacked bytes of a file, whose beginning looks like text."""
    with file.path.open("rb") as packed:
        unpacked = _unpacked(packed)
        block = _read_block(unpacked, file.name)
        _check_head(block[:_HEAD_BYTES], file.name)
        while block:
            yield block
            block = _read_block(unpacked, file.name)


def _unpacked(file: BinaryIO) -> BinaryIO:
    magic = file.read(len(_GZIP_MAGIC))
    file.seek(0)
    # Reads every member of a multi-member file, and skips zeros after the last.
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if magic == _GZIP_MAGIC else file


def _read_block(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(_BLOCK_BYTES)
    except EOFError:
        raise CorpusError(
            f"`{name}` must be a whole gzip file, but ends in the middle. Copy or download it again."
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"`{name}` must be a whole gzip file, but is damaged ({error}). "
            "Copy or download it again."
        ) from None
    except OSError as error:
        raise TradukoError(f"`{name}` could not be read: {error.strerror}. Try again.") from error


def _split(text: bytes) -> pa.Array:
    """The lines of a piece of text, without their ends; the text is not copied into Python."""
    end = len(text) - text.endswith(b"\n")
    offsets = pa.py_buffer(np.array([0, end], dtype=np.int32))
    whole = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(text))
    return pc.split_pattern(whole, "\n").flatten()


def _all_blank(lines: pa.Array) -> bool:
    return pc.all(pc.equal(pc.utf8_trim_whitespace(lines), "")).as_py() is not False


def _check_path(file: _File) -> None:
    """A file that can be opened, or CorpusError."""
    path, name = file
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


def _check_head(head: bytes, name: str) -> None:
    kind = next((kind for magic, kind in _SIGNATURES.items() if head.startswith(magic)), None)
    if head[_TAR_MAGIC] == b"ustar":
        kind = "a tar archive"
    # Without a mark, UTF-16 shows by zeros in every second byte.
    if kind is None and abs(head[::2].count(0) - head[1::2].count(0)) > 4 + len(head) // 8:
        kind = "UTF-16 without a byte order mark"
    if kind is not None:
        raise CorpusError(
            f"`{name}` must be UTF-8 text, plain or gzip, but looks like {kind}. Convert it first."
        )


def _check_line_length(text: bytes, name: str, line: int) -> None:
    # Only the first line of a piece reaches back before its last block; others are shorter.
    end = text.find(b"\n")
    if (len(text) if end < 0 else end) > MAX_LINE_BYTES:
        raise CorpusError(
            f"`{name}`, line {line}: a line must have at most {MAX_LINE_BYTES:,} bytes, but this "
            "one is longer. Check that the file is text with one sentence per line."
        )


def _check_utf8(text: bytes, name: str, line: int, offset: int) -> None:
    try:
        text.decode()  # Python's decoder refuses overlong forms and surrogates (CESU-8) too
    except UnicodeDecodeError:
        faults = _utf8_faults(text, line, offset)
        named = "; ".join(faults[:_MAX_FAULTS_NAMED])
        rest = len(faults) - _MAX_FAULTS_NAMED
        more = f"; and {rest} more lines, or still more further on" if rest > 0 else ""
        raise CorpusError(
            f"`{name}` must be UTF-8, but is not: {named}{more}. Mend these lines, or convert the "
            "file if it is in another encoding (`iconv -f LATIN1 -t UTF-8`)."
        ) from None


def _utf8_faults(text: bytes, line: int, offset: int) -> list[str]:
    """The first fault of each line; bytes count from 0, in the unpacked file."""
    faults = []
    for row in text.split(b"\n"):
        try:
            row.decode()
        except UnicodeDecodeError as error:
            found = row[error.start : error.end].hex(" ").upper()
            faults.append(f"line {line}, byte {offset + error.start}: {found} ({error.reason})")
        line += 1
        offset += len(row) + 1
    return faults


def _check_counts(src: "_Side", tgt: "_Side") -> None:
    """Raises CorpusError unless both sides ended together, after at least one line."""
    rest_is_blank = all([src.rest_is_blank(), tgt.rest_is_blank()])  # both read to the end
    if src.num_lines == tgt.num_lines:
        if src.num_lines == 0:
            raise CorpusError(
                f"`{src.name}` and `{tgt.name}` are empty: there are no pairs. Check the paths."
            )
        return
    short, long = sorted((src, tgt), key=lambda side: side.num_lines)
    hint = ""
    if rest_is_blank:
        extra = long.num_lines - short.num_lines
        blank = "extra line is blank" if extra == 1 else f"{extra} extra lines are blank"
        hint = f" The {blank}: remove from the end of `{long.name}` what is no translation."
    if short.num_lone_cr:
        hint += (
            f" `{short.name}` has {short.num_lone_cr} carriage returns (CR) without a newline: "
            "if they are its line ends, convert them to newlines."
        )
    raise CorpusError(
        f"Line n of one file must be the translation of line n of the other, but `{src.name}` has "
        f"{src.num_lines} lines and `{tgt.name}` has {tgt.num_lines}.{hint}"
    )
