"""Zip archives, read member by member."""

import errno
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, cast

from pipeline.errors import CorpusError, TradukoError
from pipeline.fetching.tar import Entry

Count = Callable[[int, int], None]
"""Takes the bytes that were unpacked since the last call, and all that were read of the archive."""

_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_READ_BYTES = 2**18
_MAX_READ_BYTES = 32 * 2**20
"""`zipfile` reads the whole directory at once; 100,000 members need about 10 MiB."""
# Others are rare, and `zipfile` unpacks them without a bound on memory.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


def is_zip(path: Path) -> bool:
    """Whether a file begins as a zip archive does."""
    with path.open("rb") as file:
        return file.read(4) in _MAGIC


def read_zip(file: BinaryIO, name: str, count: Count) -> Iterator[Entry]:
    """Every member of an archive.

    Args:
        file: The archive.
        name: What messages call it.
        count: Called after each block that is unpacked.

    Raises:
        CorpusError: If the archive or a member that is read is cut, damaged, encrypted, or packed in
            a rare way.
        TradukoError: If the disk fails.
    """
    counted = _Counted(file)
    with _told(name):
        archive = zipfile.ZipFile(cast("IO[bytes]", counted))
    for info in archive.infolist():
        member = _Member(archive, info, name)
        yield Entry(info.orig_filename, _kind(info), "", partial(member.blocks, counted, count))


def _kind(info: zipfile.ZipInfo) -> str:
    if info.filename.endswith("/"):  # `is_dir` fails on an empty name
        return "folder"
    mode = info.external_attr >> 16  # of Unix; other systems leave it 0
    if stat.S_ISLNK(mode):
        return "symbolic link"
    return "file" if stat.S_IFMT(mode) in (0, stat.S_IFREG) else "special file"


class _Member:
    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> None:
        self._archive = archive
        self._info = info
        self._name = name

    def blocks(self, counted: "_Counted", count: Count) -> Iterator[bytes]:
        self._check()
        with _told(self._name):
            member = self._archive.open(self._info)
        with member:
            while True:
                with _told(self._name):
                    block = member.read(_READ_BYTES)  # checks the CRC at the end
                count(len(block), counted.num_read)
                if not block:
                    return
                yield block

    def _check(self) -> None:
        what = None
        if self._info.flag_bits & _ENCRYPTED:
            what = "is encrypted"
        elif self._info.compress_type not in _METHODS:
            what = f"is packed in a rare way (method {self._info.compress_type})"
        if what:
            raise CorpusError(
                f"`{self._name}` holds the member, but it {what}. Unpack it by other means, and "
                "name the file."
            )


class _Counted:
    """A file that counts what is read of it, and gives no huge piece at once."""

    def __init__(self, file: BinaryIO) -> None:
        self.num_read = 0
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_READ_BYTES:
            raise zipfile.BadZipFile(f"its directory has more than {_MAX_READ_BYTES:,} bytes")
        block = self._file.read(size)
        self.num_read += len(block)
        return block


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Tells a user what `zipfile` raises, which on damaged archives is almost anything."""
    try:
        yield
    except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, struct.error) as error:
        raise _damaged(name, error) from error
    except (ValueError, RuntimeError, LookupError, OverflowError) as error:
        raise _damaged(name, error) from error
    except OSError as error:
        if error.errno in (None, errno.EINVAL):  # a place before the file's beginning
            raise _damaged(name, error) from error
        raise TradukoError(f"`{name}` could not be read: {error.strerror}. Try again.") from error


def _damaged(name: str, error: Exception) -> CorpusError:
    if isinstance(error, EOFError):
        what = "ends in the middle"
    else:
        what = f"is cut or damaged ({ascii(str(error))[1:-1][:200]})"
    return CorpusError(
        f"`{name}` must be a whole zip archive, but {what}. Copy or download it again."
    )
