"""The files that sources name: what is at an address is fetched once, for all that want it.

    <root>/work/fetched/NAME         a whole, verified file
                        NAME.json    what it is
                        NAME.partial, NAME.partial.json, set-aside/NAME: see `pipeline.fetching.partial`
                        locks/NAME

They live until a run has built all that is made of its addresses. Local files, and addresses that a
mirror serves from a folder, are taken from where they are.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.artifact import write_json
from pipeline.fetching.address import file_name, local_path, mirrored, public, recorded
from pipeline.fetching.checks import Checks, Measured, Pinned, measure
from pipeline.fetching.disk import disk_errors
from pipeline.fetching.fetch import USUAL, Fetched, examine, fetch
from pipeline.fetching.lock import Lock
from pipeline.fetching.partial import Progress
from pipeline.fetching.request import Patience
from pipeline.sources import FileSource


@dataclass(frozen=True)
class Files:
    """Gets the files of one root."""

    folder: Path
    """`<root>/work/fetched`."""
    mirrors: Mapping[str, str]
    lock: Lock
    """What addresses without a sha256 of their own must give."""
    say: Callable[[str], None]
    patience: Patience = USUAL

    @contextmanager
    def open(self, file: FileSource, on_progress: Progress | None = None) -> Iterator[Fetched]:
        """A file, whole and verified, which stays until the end of `with`.

        Raises:
            CorpusError: As `fetch` and `examine` do.
            TradukoError: As `fetch` does.
        """
        path = self._local(file)
        if path is not None:
            yield examine(path, self._checks(file))
            return
        with disk_errors(self.folder):
            (self.folder / "locks").mkdir(parents=True, exist_ok=True)
        with (self.folder / "locks" / _name(file.address)).open("a", encoding="utf-8") as lock:
            self._take(lock, fcntl.LOCK_SH, file)
            while not (fetched := self._find(file)):
                self._take(lock, fcntl.LOCK_EX, file)
                if not self._find(file):
                    self._make_sure(file, on_progress)
                self._take(lock, fcntl.LOCK_SH, file)  # others may read it; nobody can remove it
            yield fetched

    def place(self, file: FileSource, target: Path, on_progress: Progress | None = None) -> Fetched:
        """Put a file at `target`, in an existing folder: linked where that can be, else copied.

        Raises:
            CorpusError: As `fetch` does.
            TradukoError: As `fetch` does.
        """
        if self._local(file) is not None:
            return fetch(file.address, target, self._checks(file), self.mirrors, on_progress)
        with self.open(file, on_progress) as fetched, disk_errors(target):
            try:
                target.hardlink_to(fetched.path)
            except OSError:  # another disk, or one without links
                shutil.copyfile(fetched.path, target)
        return fetched._replace(path=target)

    def remote(self, files: Iterable[FileSource]) -> list[FileSource]:
        """Those that must come over the network, one for each address."""
        by_address = {file.address: file for file in files if self._local(file) is None}
        return list(by_address.values())

    def clear(self, files: Iterable[FileSource]) -> None:
        """Remove what is no longer needed; what another run uses stays."""
        for file in self.remote(files):
            path = self.folder / _name(file.address)
            if path.exists():
                with (
                    (self.folder / "locks" / path.name).open("a", encoding="utf-8") as lock,
                    contextlib.suppress(BlockingIOError),
                ):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)

    def _local(self, file: FileSource) -> Path | None:
        return local_path(mirrored(file.address, self.mirrors))

    def _checks(self, file: FileSource) -> Checks:
        checks = Checks(file.sha256, file.md5, file.bytes)
        name = recorded(file.address) if file.url and not file.sha256 else ""
        pin = self.lock.pins().get(name)
        if pin is None:
            return checks
        pinned = Pinned(self.lock.path, name)
        return dataclasses.replace(
            checks, sha256=pin.sha256, size_bytes=pin.size_bytes, pinned=pinned
        )

    def _take(self, lock: IO[str], how: int, file: FileSource) -> None:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            self.say(f"{public(file.address)}: another run is fetching it; waiting for that")
            fcntl.flock(lock, how)

    def _find(self, file: FileSource) -> Fetched | None:
        """What is there, if that is known to be right; the caller holds the lock."""
        path = self.folder / _name(file.address)
        try:
            entry = json.loads(_entry(path).read_text(encoding="utf-8"))
            mtime_ns = entry.pop("mtime_ns")
            known, state = Fetched(path, **entry), path.stat()
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        if (state.st_size, state.st_mtime_ns) != (known.size_bytes, mtime_ns):
            return None
        measured = Measured(known.sha256, known.md5, known.size_bytes, is_web_page=False)
        return None if self._checks(file).fault(known.address, measured) else known

    def _make_sure(self, file: FileSource, on_progress: Progress | None) -> None:
        """Fetch what is not there yet, and note what it is; the caller holds the lock alone."""
        path, checks = self.folder / _name(file.address), self._checks(file)
        known = self._recognise(path, checks, public(mirrored(file.address, self.mirrors)))
        if not known:
            known = fetch(file.address, path, checks, self.mirrors, on_progress, self.patience)
        entry = {**known._asdict(), "mtime_ns": path.stat().st_mtime_ns}
        del entry["path"]
        with disk_errors(path):
            write_json(_entry(path), entry)

    def _recognise(self, path: Path, checks: Checks, address: str) -> Fetched | None:
        """A file of which nothing is known, or something else, if it is right; else it goes."""
        if not path.exists():
            return None
        found = measure(path, md5=checks.md5 is not None)
        if checks.fault(address, found):
            _remove(path)
            return None
        return Fetched(path, found.sha256, found.size_bytes, address, found.md5)


def _name(address: str) -> str:
    """Of the file that an address gives: a digest, and for people the end of the address."""
    end = re.sub(r"[^A-Za-z0-9._-]", "_", file_name(address))[-80:]
    return f"{hashlib.sha256(address.encode()).hexdigest()[:16]}-{end}"


def _entry(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _entry(path).unlink(missing_ok=True)
    aside = path.parent / "set-aside"
    for old in (aside / path.name, aside / f"{path.name}.why.txt"):
        old.unlink(missing_ok=True)
