"""Archives: tar, plain or packed, and zip; told by content, never by name.

Single files are taken out of them, each to a place of its own: nothing is ever written under a
member's name. An archive that is damaged, or that would write outside its folder if it were
unpacked, is refused as a whole, whatever is wanted of it.

A member is named by a pattern: `*`, `?` and `[…]` match within one part of a path, never a `/`, and
`./` at the start does not count. It must match exactly one file. `outer.tgz!train.en` is a file in an
archive in the archive. A file that is itself packed is stored as it is.
"""

import difflib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import dirname, join, normpath
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from pipeline.errors import CorpusError, printable
from pipeline.fetching.disk import disk_errors, publish
from pipeline.fetching.packed import Unpacked, open_unpacked
from pipeline.fetching.partial import Progress
from pipeline.fetching.tar import BLOCK_BYTES, Entry, is_tar, read_tar
from pipeline.fetching.zip import is_zip, read_zip

_MAX_NAME_BYTES = 4096
_MAX_NAMES_KEPT = 10_000
_MAX_NAMES_TOLD = 5
_MAX_CHARS_TOLD = 200
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class Limits:
    """What an archive may unpack to.

    A bomb is refused by what comes out of it, not by what its headers say.

    Attributes:
        max_bytes: Unpacked bytes in all. The largest public corpora have some tens of GiB a side.
        max_ratio: Unpacked bytes for each byte of the archive. Text has 3 to 6, rarely 20.
        min_bytes: Up to here the ratio does not count.
        max_members: Files, folders and all.
    """

    max_bytes: int = 256 * 2**30
    max_ratio: int = 100
    min_bytes: int = 2**20
    max_members: int = 100_000


class Extracted(NamedTuple):
    """A file that was taken out of an archive."""

    member: str
    """Its whole name, fit to be shown; with `!` after the name of each archive that it is in."""
    size_bytes: int
    sha256: str


def extract_all(
    archive: Path,
    wanted: Mapping[str, Path],
    name: str | None = None,
    limits: Limits = Limits(),
    on_progress: Progress | None = None,
) -> dict[str, Extracted]:
    """Takes files out of an archive, in one pass over all of it.

    Args:
        archive: An existing file.
        wanted: Member -> target, a path in an existing folder. Targets appear when all of them are
            whole; an archive in the archive is unpacked beside its first target, and removed.
        name: What messages call the archive.
        limits: Of the archive, and of each one in it.
        on_progress: Called after each block with the bytes of the archive that were read so far, and
            its size; the count starts again for an archive in the archive.

    Returns:
        What was found, by member as in `wanted`.

    Raises:
        CorpusError: If it is no whole archive, holds a path that leads out of it, exceeds a limit,
            or a member matches no file, several, one twice, an encrypted one, a link or a device.
        TradukoError: If the disk fails.
    """
    partials = {
        member: target.with_name(f"{target.name}.partial") for member, target in wanted.items()
    }
    try:
        found = _take(_Archive(archive, name or str(archive), limits, on_progress), partials)
        for member, target in wanted.items():
            publish(partials[member], target)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
    return found


def is_archive(path: Path, name: str | None = None) -> bool:
    """Whether a file is a tar or zip archive.

    Raises:
        CorpusError: If it is packed, and cut or damaged at its beginning.
    """
    return is_zip(path) or _is_tar(path, name)


def first_members(archive: Path, most: int, name: str | None = None) -> list[str]:
    """The first files in an archive, their names fit to be shown.

    Raises:
        CorpusError: As `extract_all`.
    """
    found: list[str] = []
    with _Archive(archive, name or str(archive), Limits()).entries() as entries:
        for path, entry in entries:
            if entry.kind == "file":
                found.append(_shown(path))
            if len(found) == most:
                break
    return found


@dataclass(frozen=True)
class _Archive:
    """One archive, and how it is read."""

    path: Path
    name: str
    limits: Limits
    on_progress: Progress | None = None

    @contextmanager
    def entries(self) -> Iterator[Iterator[tuple[str, Entry]]]:
        """All members with their paths, none of which leads out of the archive."""
        meter = _Meter(self)
        if is_zip(self.path):
            with self.path.open("rb") as file:
                yield self._checked(read_zip(file, self.name, meter.count))
        elif _is_tar(self.path, self.name):
            with open_unpacked(self.path, self.name) as stream:
                yield self._checked(read_tar(_MeteredStream(stream, meter)))
        else:
            raise CorpusError(
                f"`{self.name}` must be a tar or zip archive to have a `member`, but is none. "
                "Leave `member` out, or check the file."
            )

    def _checked(self, entries: Iterator[Entry]) -> Iterator[tuple[str, Entry]]:
        for number, entry in enumerate(entries, start=1):
            if number > self.limits.max_members:
                raise CorpusError(
                    f"`{self.name}` must have at most {self.limits.max_members:,} members, but has "
                    "more. Unpack it by other means, and name the files."
                )
            if len(entry.name) > _MAX_NAME_BYTES:
                self._refuse(f"it holds a name of more than {_MAX_NAME_BYTES:,} characters")
            if _leads_out(entry.name):
                self._refuse(f"the path `{_shown(entry.name)}` leads out of it")
            if _link_leads_out(entry):
                self._refuse(
                    f"its {entry.kind} `{_shown(entry.name)}` leads to `{_shown(entry.link)}`, "
                    "outside of it"
                )
            yield _plain(entry.name), entry

    def _refuse(self, what: str) -> None:
        raise CorpusError(
            f"`{self.name}` is not safe to unpack: {what}. Get the archive from another place, or "
            "unpack it by other means and name the files."
        )


class _Meter:
    """Counts what comes out of an archive, and stops a bomb."""

    def __init__(self, archive: _Archive) -> None:
        self._archive = archive
        self._size_bytes = archive.path.stat().st_size
        self._num_bytes = 0

    def count(self, num_bytes: int, num_packed_bytes: int) -> None:
        """So many more bytes came out, and so many of the archive were read in all."""
        limits = self._archive.limits
        self._num_bytes += num_bytes
        if self._archive.on_progress:
            self._archive.on_progress(num_packed_bytes, self._size_bytes)
        if self._num_bytes > limits.max_bytes:
            self._refuse(f"{limits.max_bytes:,} bytes")
        if self._num_bytes > max(limits.min_bytes, limits.max_ratio * num_packed_bytes):
            self._refuse(f"{limits.max_ratio} times its size")

    def _refuse(self, limit: str) -> None:
        raise CorpusError(
            f"`{self._archive.name}` must unpack to at most {limit}, but does to more: it may be a "
            "bomb. If you trust it, unpack it by other means and name the files."
        )


class _MeteredStream:
    """An unpacked tar archive."""

    def __init__(self, stream: Unpacked, meter: _Meter) -> None:
        self.name = stream.name
        self._stream = stream
        self._meter = meter

    def read(self, size: int, /) -> bytes:
        block = self._stream.read(size)
        self._meter.count(len(block), self._stream.num_packed_bytes)
        return block


def _take(archive: _Archive, wanted: Mapping[str, Path]) -> dict[str, Extracted]:
    """Writes members to their places, through archives in the archive."""
    places, inner = dict[str, Path](), dict[str, dict[str, Path]]()
    for member, place in wanted.items():
        outer, is_nested, rest = member.partition("!")
        if is_nested:
            inner.setdefault(outer, {})[rest] = place
        else:
            places[member] = place
    with ExitStack() as stack:
        for outer in inner:
            beside = next(iter(inner[outer].values()))
            with disk_errors(beside):
                made = NamedTemporaryFile(dir=beside.parent, prefix=f"{beside.name}.")  # noqa: SIM115
            places[outer] = Path(stack.enter_context(made).name)
        found = _take_here(archive, places)
        for outer in inner:
            nested = _Archive(
                places[outer],
                f"{archive.name}!{found[outer].member}",
                archive.limits,
                archive.on_progress,
            )
            for rest, taken in _take(nested, inner[outer]).items():
                whole = f"{found[outer].member}!{taken.member}"
                found[f"{outer}!{rest}"] = taken._replace(member=whole)
    return {member: found[member] for member in wanted}


def _take_here(archive: _Archive, places: Mapping[str, Path]) -> dict[str, Extracted]:
    """Writes members to their places: one pass, to the end even if all were found."""
    found: dict[str, Extracted] = {}
    paths: list[str] = []
    with archive.entries() as entries:
        for path, entry in entries:
            if entry.kind == "folder":
                continue
            if len(paths) < _MAX_NAMES_KEPT:
                paths.append(path)
            pattern = _wanted(archive, path, places)
            if pattern is None:
                continue
            _check_match(archive, path, entry, pattern, found.get(pattern))
            found[pattern] = _save(path, entry, places[pattern])
    for pattern in places:
        if pattern not in found:
            raise CorpusError(_not_there(archive, pattern, paths))
    return found


def _wanted(archive: _Archive, path: str, places: Mapping[str, Path]) -> str | None:
    """The pattern that matches a path."""
    patterns = [pattern for pattern in places if _matches(path, pattern)]
    if len(patterns) > 1:
        raise CorpusError(
            f"`{archive.name}`: `{_shown(path)}` must be one of the files wanted, but is "
            f"{' and '.join(f'`{pattern}`' for pattern in patterns)}. Set each `member` to a file "
            "of its own."
        )
    return patterns[0] if patterns else None


def _check_match(
    archive: _Archive, path: str, entry: Entry, pattern: str, earlier: Extracted | None
) -> None:
    if earlier and earlier.member == _shown(path):
        raise CorpusError(
            f"`{archive.name}` must hold `{_shown(path)}` once, but does twice: which one counts is "
            "not clear. Unpack it by other means, and name the file."
        )
    if earlier:
        raise CorpusError(
            f"`{archive.name}` must hold one file `{pattern}` (`member`), but holds "
            f"`{earlier.member}` and `{_shown(path)}`. Name one of them."
        )
    if entry.kind != "file":
        raise CorpusError(
            f"`{archive.name}`: `{_shown(path)}` must be a regular file, but is a {entry.kind}. "
            "Name the file itself."
        )


def _save(path: str, entry: Entry, place: Path) -> Extracted:
    """Writes a member to the disk, where it is safe when this returns."""
    digest, size_bytes = hashlib.sha256(), 0
    with disk_errors(place), place.open("wb") as file:
        for block in entry.blocks():
            file.write(block)
            digest.update(block)
            size_bytes += len(block)
        file.flush()
        os.fsync(file.fileno())
    return Extracted(_shown(path), size_bytes, digest.hexdigest())


def _not_there(archive: _Archive, pattern: str, paths: list[str]) -> str:
    nearest = difflib.get_close_matches(pattern, paths, _MAX_NAMES_TOLD, cutoff=0.5)
    names = ", ".join(f"`{_shown(path)}`" for path in nearest or paths[:_MAX_NAMES_TOLD])
    there = f"{'Nearest to it' if nearest else 'It holds'}: {names}." if names else "It is empty."
    return f"`{archive.name}` must hold `{pattern}` (`member`), but does not. {there}"


def _matches(path: str, pattern: str) -> bool:
    parts, patterns = path.split("/"), _plain(pattern).split("/")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def _plain(path: str) -> str:
    """A path without what does not count in it."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _leads_out(path: str) -> bool:
    """Whether a path is absolute or climbs, on any system."""
    parts = path.replace("\\", "/").split("/")
    return ".." in parts or not parts[0] or (len(parts) > 1 and bool(_DRIVE.fullmatch(parts[0])))


def _link_leads_out(entry: Entry) -> bool:
    if entry.kind == "hard link":
        return _leads_out(entry.link)
    if entry.kind != "symbolic link" or not entry.link:
        return False
    return _leads_out(normpath(join(dirname(entry.name), entry.link)))


def _shown(text: str) -> str:
    """A name out of an archive, fit for a terminal and a file."""
    return printable(text)[:_MAX_CHARS_TOLD]


def _is_tar(path: Path, name: str | None) -> bool:
    with open_unpacked(path, name) as stream:
        return is_tar(stream.read(BLOCK_BYTES))
