"""Tar archives, read as a stream: plain (v7, ustar), GNU's and POSIX's (pax).

Stricter than `tarfile`, which takes a damaged header in the middle and a missing end for the end of
the archive, and reads headers of any size into memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, Protocol

from pipeline.errors import CorpusError

BLOCK_BYTES = 512

_READ_BYTES = 2**20
_MAX_HEADER_BYTES = 2**20
"""Of a long name or of extended attributes, which are held in memory."""

_CHECKSUM = slice(148, 156)
_MAGIC = slice(257, 265)
_POSIX_MAGIC = b"ustar\x00"
_KINDS = {
    b"\0": "file",
    b"0": "file",
    b"7": "file",
    b"1": "hard link",
    b"2": "symbolic link",
    b"3": "device",
    b"4": "device",
    b"5": "folder",
    b"6": "pipe",
    b"S": "sparse file",
}
_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
_LONG_NAME, _LONG_LINK = b"L", b"K"
_ATTRIBUTES, _COMMON_ATTRIBUTES = (b"x", b"X"), b"g"
_ATTRIBUTES_READ = (b"path", b"linkpath", b"size")
_SPARSE = b"GNU.sparse."
_MAX_DIGITS = 20


class Stream(Protocol):
    """What a tar archive is read from."""

    name: str

    def read(self, size: int, /) -> bytes:
        """As many bytes as asked for; fewer only at the end."""
        ...


class Entry(NamedTuple):
    """A member of an archive: its header, and its data."""

    name: str
    kind: str
    """`file`, or what else it is."""
    link: str
    """Where a link leads: a hard link from the archive's root on; empty where that is not known."""
    blocks: Callable[[], Iterator[bytes]]
    """Reads the data; to be called, if at all, before the next entry is asked for."""


def is_tar(head: bytes) -> bool:
    """Whether a file that begins with this block is a tar archive, perhaps a damaged one."""
    return head[_MAGIC].startswith(b"ustar") or (
        len(head) >= BLOCK_BYTES and _has_checksum(head[:BLOCK_BYTES])
    )


def read_tar(stream: Stream) -> Iterator[Entry]:
    """Every member of an archive. What stands after the end mark is read, and is nothing.

    Raises:
        CorpusError: If the archive is cut or damaged.
    """
    return _Tar(stream).entries()


class _Tar:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._common: dict[str, str] = {}
        self._num_unread = 0  # bytes of the entry's data, and of the padding after it
        self._padding = 0

    def entries(self) -> Iterator[Entry]:
        attributes: dict[str, str] = {}  # of the next member
        while any(header := self._exactly(BLOCK_BYTES)):
            if not _has_checksum(header):
                self._refuse("a header's checksum is wrong")
            kind, size = header[156:157], self._number(header[124:136])
            if kind in (_LONG_NAME, _LONG_LINK):
                key = "path" if kind == _LONG_NAME else "linkpath"
                attributes[key] = _text(self._small_data(size))
            elif kind in _ATTRIBUTES:
                attributes |= self._attributes(self._small_data(size))
            elif kind == _COMMON_ATTRIBUTES:
                self._common |= self._attributes(self._small_data(size))
            else:
                yield self._entry(header, kind, size, self._common | attributes)
                self._skip()
                attributes = {}
        while self._stream.read(_READ_BYTES):
            pass

    def _entry(self, header: bytes, kind: bytes, size: int, attributes: dict[str, str]) -> Entry:
        name = attributes.get("GNU.sparse.name") or attributes.get("path") or _name(header)
        what = _KINDS.get(kind, "special file")
        if what == "file" and name.endswith("/"):  # so the oldest archives mark folders
            what = "folder"
        if any(key.startswith(_SPARSE.decode()) for key in attributes):
            what = "sparse file"
        if kind == b"S":
            self._refuse("it holds a sparse file in GNU's old way")
        if "size" in attributes:
            size = self._decimal(attributes["size"].encode(errors="surrogateescape"))
        self._num_unread = 0 if kind in _WITHOUT_DATA else size
        self._padding = -self._num_unread % BLOCK_BYTES
        link = attributes.get("linkpath") or _text(header[157:257])
        return Entry(name, what, link, self._blocks)

    def _blocks(self) -> Iterator[bytes]:
        while self._num_unread:
            block = self._exactly(min(self._num_unread, _READ_BYTES))
            self._num_unread -= len(block)
            yield block

    def _skip(self) -> None:
        for _ in self._blocks():
            pass
        self._exactly(self._padding)

    def _small_data(self, size: int) -> bytes:
        if size > _MAX_HEADER_BYTES:
            self._refuse(f"a header has more than {_MAX_HEADER_BYTES:,} bytes")
        return self._exactly(size + -size % BLOCK_BYTES)[:size]

    def _attributes(self, records: bytes) -> dict[str, str]:
        """Those that matter, of records `LENGTH KEY=VALUE` with a newline at the end."""
        attributes = {}
        start, end = 0, len(records.rstrip(b"\0"))
        while start < end:
            digits = records[start : start + _MAX_DIGITS].split(b" ", 1)[0]
            stop = start + self._decimal(digits)
            key, is_pair, value = records[start + len(digits) + 1 : stop].partition(b"=")
            if stop > end or not is_pair or not value.endswith(b"\n"):
                self._refuse("an extended header is not well formed")
            if key in _ATTRIBUTES_READ or key.startswith(_SPARSE):
                attributes[_decoded(key)] = _decoded(value[:-1])
            start = stop
        return attributes

    def _number(self, field: bytes) -> int:
        """Octal digits, or GNU's binary form where these do not suffice."""
        if field[0] == 0x80:
            return int.from_bytes(field[1:])
        digits = field.split(b"\0", 1)[0].strip()
        if digits.strip(b"01234567"):
            self._refuse("a size is no number")
        return int(digits or b"0", 8)

    def _decimal(self, digits: bytes) -> int:
        if not digits.isdigit() or len(digits) > _MAX_DIGITS:
            self._refuse("an extended header is not well formed")
        return int(digits)

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size) if size else b""
        if len(data) < size:
            raise CorpusError(
                f"`{self._stream.name}` must be a whole tar archive, but ends in the middle. "
                "Copy or download it again."
            )
        return data

    def _refuse(self, what: str) -> NoReturn:
        raise CorpusError(
            f"`{self._stream.name}` must be a whole tar archive, but is damaged or of an unknown "
            f"kind: {what}. Copy or download it again, or unpack it by other means."
        )


def _has_checksum(header: bytes) -> bool:
    """Whether a header sums up to what it says; some old programs took bytes for signed."""
    digits = header[_CHECKSUM].split(b"\0", 1)[0].strip()
    if not digits or digits.strip(b"01234567"):
        return False
    field = header[_CHECKSUM]
    unsigned = sum(header) - sum(field) + len(field) * ord(" ")
    num_high = sum(byte >= 0x80 for byte in header) - sum(byte >= 0x80 for byte in field)
    return int(digits, 8) in (unsigned, unsigned - 256 * num_high)


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[_MAGIC].startswith(_POSIX_MAGIC) else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return _decoded(field.split(b"\0", 1)[0])


def _decoded(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")
