"""Artifacts: a stage's result, named before it exists, whole or absent.

    <root>/<stage>/<16 hex of the fingerprint>/manifest.json
                                              /attempt-<uuid>/…

An attempt writes only inside its own folder. The manifest names the attempt and is written last, by
rename. No manifest, no artifact; readers follow only the manifest.
"""

import dataclasses
import hashlib
import json
import os
import platform
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.errors import TradukoError
from pipeline.turns import Voice, turn, unheard
from pipeline.whole_file import whole_file

Json = dict[str, Any]
MANIFEST = "manifest.json"


class Input(NamedTuple):
    """What a stage is made from: the name of its place in the graph, and what it holds."""

    name: str
    fingerprint: str
    content: str


@dataclass(frozen=True)
class Identity:
    """Everything that determines an artifact."""

    stage: str
    version: int
    """Raised when the same config and inputs give other rows than before."""
    config: Json
    """The fields that determine the result, those at their default left out."""
    inputs: tuple[Input, ...]
    tools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Versions of what shapes the rows."""
    aside: tuple[str, ...] = ()
    """Patterns of files that no later stage reads: kept, but not part of the content."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over what determines the result; inputs count by content alone."""
        return digest_json(
            {
                "stage": self.stage,
                "version": self.version,
                "config": self.config,
                "inputs": [[name, content] for name, _, content in self.inputs],
                "tools": dict(self.tools),
            }
        )


@dataclass(frozen=True)
class File:
    """One file of an artifact."""

    path: str
    bytes: int
    sha256: str
    rows: int | None
    content: str
    """Digest of the rows of a table; of any other file its sha256."""


@dataclass(frozen=True)
class Manifest:
    """What an artifact is, where it came from, and how it was made."""

    stage: str
    version: int
    fingerprint: str
    attempt: str
    config: Json
    inputs: tuple[Input, ...]
    files: tuple[File, ...]
    content: str
    stats: Json
    tools: Json
    host: str
    started_at: str
    took_s: float

    @classmethod
    def read(cls, path: Path) -> "Manifest":
        """The manifest in a file.

        Raises:
            ValueError: If it is not a manifest.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            raw["inputs"] = tuple(Input(*entry) for entry in raw["inputs"])
            raw["files"] = tuple(File(**entry) for entry in raw["files"])
            return cls(**raw)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a manifest: {error}") from None


@dataclass(frozen=True)
class Artifact:
    """A finished result."""

    folder: Path
    """Of the attempt: where the files are."""
    manifest: Manifest

    @property
    def stats(self) -> Json:
        """What the stage counted."""
        return self.manifest.stats

    def paths(self, pattern: str) -> list[Path]:
        """Files whose whole path matches, in the manifest's order."""
        files = self.manifest.files
        return [self.folder / file.path for file in files if fnmatchcase(file.path, pattern)]

    def path(self, name: str) -> Path:
        """One file, by its path in the artifact."""
        [path] = self.paths(name)
        return path

    def verify(self, *, deep: bool) -> None:
        """Compare the files with the manifest: their sizes, and with `deep` their hashes.

        Raises:
            Damaged: If they differ.
        """
        for file in self.manifest.files:
            path = self.folder / file.path
            if not path.is_file():
                raise Damaged(f"{path} is missing")
            size = path.stat().st_size
            if size != file.bytes:
                raise Damaged(f"{path} must have {file.bytes} bytes, but has {size}")
            if deep and digest_file(path) != file.sha256:
                raise Damaged(f"{path} does not have the sha256 {file.sha256[:16]}… any more")


class Damaged(Exception):  # noqa: N818 - a finding, not a failure
    """An artifact's files are not what its manifest says."""


Build = Callable[[Path, Path], Json]
"""Fills an empty folder, with another one for resumable state; returns statistics."""


@dataclass(frozen=True)
class Root:
    """A folder of artifacts on a local disk."""

    folder: Path
    say: Callable[[str], None]
    """Told of what a person should know: damage found, waiting for another run."""
    remind: Callable[[str], None] = unheard
    """Told now and then that a wait goes on."""

    def place(self, identity: Identity) -> Path:
        """The folder that holds the artifact's manifest."""
        return self.folder / identity.stage / identity.fingerprint[:16]

    def find(self, identity: Identity, *, deep: bool = False) -> Artifact | None:
        """The finished artifact, or none.

        Raises:
            Damaged: If it is there, but a file is missing or has another size (with `deep`: hash).
        """
        place = self.place(identity)
        try:
            manifest = Manifest.read(place / MANIFEST)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise Damaged(str(error)) from None
        if manifest.fingerprint != identity.fingerprint:
            raise Damaged(f"{place} holds another artifact, {manifest.fingerprint}")
        artifact = Artifact(place / manifest.attempt, manifest)
        artifact.verify(deep=deep)
        return artifact

    def produce(
        self,
        identity: Identity,
        build: Build,
        *,
        work_key: str | None = None,
        force: bool = False,
        deep: bool = False,
    ) -> tuple[Artifact, bool]:
        """The artifact, and whether it was there already.

        Args:
            identity: What determines it.
            build: Makes it, given an empty folder and the folder of its resumable state.
            work_key: Names resumable state that outlives the artifact; none = cleared on commit.
            force: Build even if it is there.
            deep: Verify hashes, not sizes only.
        """
        artifact = None if force else self._find_whole(identity, deep=deep)
        if artifact:
            return artifact, True
        stage, work = identity.stage, work_key or identity.fingerprint[:16]
        with self.turn(f"{stage}-{work}", stage, f"{stage}: another run is building it"):
            artifact = None if force else self._find_whole(identity, deep=deep)
            if artifact:
                return artifact, True
            return self._build(identity, build, work_key), False

    def _find_whole(self, identity: Identity, *, deep: bool) -> Artifact | None:
        try:
            return self.find(identity, deep=deep)
        except Damaged as damage:
            aside = self.folder / "damaged" / f"{identity.stage}-{uuid.uuid4().hex}"
            aside.parent.mkdir(exist_ok=True)
            self.place(identity).rename(aside)
            self.say(f"{identity.stage}: {damage}; set aside in {aside}, building it again")
            return None

    def _build(self, identity: Identity, build: Build, work_key: str | None) -> Artifact:
        place = self.place(identity)
        place.mkdir(parents=True, exist_ok=True)
        _sweep(place)
        work = self.folder / "work" / identity.stage / (work_key or identity.fingerprint[:16])
        work.mkdir(parents=True, exist_ok=True)
        attempt = place / f"attempt-{uuid.uuid4().hex}"
        attempt.mkdir()
        started_at, start = datetime.now(UTC), time.perf_counter()
        try:
            stats = build(attempt, work)
            files = tuple(_describe(attempt))
        except BaseException:
            shutil.rmtree(attempt, ignore_errors=True)
            raise
        manifest = Manifest(
            stage=identity.stage,
            version=identity.version,
            fingerprint=identity.fingerprint,
            attempt=attempt.name,
            config=identity.config,
            inputs=identity.inputs,
            files=files,
            content=_content(files, identity.aside),
            stats=stats,
            tools={"python": platform.python_version(), **identity.tools},
            host=socket.gethostname(),
            started_at=started_at.isoformat(timespec="seconds"),
            took_s=round(time.perf_counter() - start, 3),
        )
        write_json(place / MANIFEST, dataclasses.asdict(manifest))
        if work_key is None:
            shutil.rmtree(work, ignore_errors=True)
        _sweep(place, keep=attempt.name)
        return Artifact(attempt, manifest)

    def turn(self, name: str, what: str, waits: str) -> AbstractContextManager[None]:
        """One process at a time, of those that name the same; the others wait, and say so."""
        return turn(self.folder / "locks" / name, what, waits, Voice(self.say, self.remind))


def digest_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """SHA-256 over canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Write a JSON file whole or not at all, and durably."""
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    _sync(path.parent)


def _describe(attempt: Path) -> Iterator[File]:
    """Every file of a finished attempt, made durable, in path order."""
    from pipeline.tables import is_table, rows_digest  # noqa: PLC0415 - pyarrow, only to build

    for path in sorted(path for path in attempt.rglob("*") if path.is_file()):
        _sync(path)
        sha256 = digest_file(path)
        rows, content = rows_digest(path) if is_table(path) else (None, sha256)
        name = path.relative_to(attempt).as_posix()
        yield File(name, path.stat().st_size, sha256, rows, content)
    for folder in (attempt, *(path for path in attempt.rglob("*") if path.is_dir())):
        _sync(folder)


def _content(files: Sequence[File], aside: tuple[str, ...]) -> str:
    counted = [
        [file.path, file.rows, file.content]
        for file in files
        if not any(fnmatchcase(file.path, pattern) for pattern in aside)
    ]
    return digest_json(counted)


def _sweep(place: Path, keep: str = "") -> None:
    """Remove attempts that were abandoned; the caller holds the lock."""
    for attempt in place.glob("attempt-*"):
        if attempt.name not in {keep, _named_attempt(place)}:
            shutil.rmtree(attempt, ignore_errors=True)
    for leftover in place.glob(f"{MANIFEST}.*"):
        leftover.unlink(missing_ok=True)


def _named_attempt(place: Path) -> str:
    try:
        return Manifest.read(place / MANIFEST).attempt
    except (OSError, ValueError):
        return ""


def _sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(folder: Path) -> None:
    """Make the root, and make sure that it takes files.

    Raises:
        TradukoError: If it does not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{uuid.uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise TradukoError(
            f"The root {folder} must be a writable folder: {error.strerror}. Choose another "
            "with --root."
        ) from None
