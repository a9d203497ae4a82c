"""Files packed as a whole: gzip, bzip2, xz and zstd, read as what they hold, in bounded memory.

How a file is packed is told by its first bytes, never by its name. A file of several members, streams
or frames, as `cat a.gz b.gz` makes one, is read to its end; one that is cut or damaged anywhere is
refused, whatever came before.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from pipeline.errors import CorpusError, TradukoError

MAX_XZ_MEMORY_BYTES = 256 * 2**20
"""`xz -9` needs 65 MiB to be unpacked; a file may ask for gigabytes. Arrow holds zstd to 128 MiB."""

_BLOCK_BYTES = 2**18
_HEAD_BYTES = 10
_KINDS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL),
}


def packing(head: bytes) -> str | None:
    """What a file's first bytes tell of how it is packed: gzip, bzip2, xz, zstd or none."""
    return next((kind for kind, magic in _KINDS.items() if magic.match(head)), None)


def open_unpacked(path: Path, name: str | None = None) -> "Unpacked":
    """Opens a file, packed or not, to read what it holds.

    Args:
        path: An existing file.
        name: What messages call it.

    Raises:
        CorpusError: While reading, if the file is cut or damaged.
        TradukoError: While reading, if the disk fails.
    """
    return Unpacked(path, name or str(path))


class Unpacked(io.BufferedIOBase):
    """The unpacked bytes of one file. A read gives as many as asked for, fewer only at the end."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._file = path.open("rb")
        self.kind = packing(self._file.read(_HEAD_BYTES))
        self._file.seek(0)
        self._inner = _OPENERS[self.kind](self._file) if self.kind else self._file

    @property
    def num_packed_bytes(self) -> int:
        """How much of the file itself was read so far."""
        return self._file.tell()

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads on.

        Raises:
            CorpusError: If the file is cut or damaged.
            TradukoError: If the disk fails.
        """
        if size is None or size < 0:  # in blocks: Arrow fails to read all of a damaged file at once
            return b"".join(iter(lambda: self.read(_BLOCK_BYTES), b""))
        try:
            return self._inner.read(size)
        except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException, OSError) as error:
            raise self._told(error) from error

    def close(self) -> None:
        """Closes the file."""
        self._inner.close()
        self._file.close()
        super().close()

    def _told(self, error: Exception) -> TradukoError:
        """What every decoder's errors are to a user; those of Arrow and bzip2 come as OSError."""
        if isinstance(error, OSError) and error.errno:
            return TradukoError(f"`{self.name}` could not be read: {error.strerror}. Try again.")
        is_cut = isinstance(error, EOFError) or "Truncated" in str(error)
        what = "ends in the middle" if is_cut else f"is damaged ({error})"
        return CorpusError(
            f"`{self.name}` must be a whole {self.kind} file, but {what}. "
            "Copy or download it again."
        )


class _Decoder(Protocol):
    """One stream of a bzip2 or xz file."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Streams(io.RawIOBase):
    """All streams of a bzip2 or xz file; zeros after the last are padding.

    `bz2.open` and `lzma.open` take whatever else follows a stream for padding too, so that a file
    with a damaged second stream would end early and in silence.
    """

    def __init__(self, file: BinaryIO, new_decoder: Callable[[], _Decoder]) -> None:
        self._file = file
        self._new_decoder = new_decoder
        self._decoder = new_decoder()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            data = b""
            if self._decoder.eof:
                data = self._next_stream()
                if not data:
                    return 0
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                data = self._file.read(_BLOCK_BYTES)
                if not data:
                    raise EOFError
            text = self._decoder.decompress(data, len(buffer))
            if text:
                buffer[: len(text)] = text
                return len(text)

    def _next_stream(self) -> bytes:
        """The first bytes after a stream and its padding; none at the end."""
        data = self._decoder.unused_data
        while not (rest := data.lstrip(b"\0")):
            data = self._file.read(_BLOCK_BYTES)
            if not data:
                return b""
        return rest


def _open_bzip2(file: BinaryIO) -> BinaryIO:
    return io.BufferedReader(_Streams(file, bz2.BZ2Decompressor), _BLOCK_BYTES)


def _open_xz(file: BinaryIO) -> BinaryIO:
    def new_decoder() -> _Decoder:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY_BYTES)

    return io.BufferedReader(_Streams(file, new_decoder), _BLOCK_BYTES)


def _open_gzip(file: BinaryIO) -> BinaryIO:
    # Reads every member of a multi-member file, and skips zeros after the last.
    return cast("BinaryIO", gzip.GzipFile(fileobj=file))


def _open_zstd(file: BinaryIO) -> BinaryIO:
    # Reads every frame, and skips those that hold no data.
    return cast("BinaryIO", pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"))


_OPENERS = {"gzip": _open_gzip, "bzip2": _open_bzip2, "xz": _open_xz, "zstd": _open_zstd}
