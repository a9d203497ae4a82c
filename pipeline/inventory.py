"""What a root holds: its artifacts, what each was made from, and what no recipe needs any more."""

import fcntl
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.artifact import MANIFEST, Artifact, Damaged, Json, Manifest
from pipeline.dag import read_record
from pipeline.errors import InputError, TradukoError
from pipeline.stages import STAGE_NAMES

SHORT = 16
"""Hex digits of a fingerprint that name an artifact's folder."""


@dataclass(frozen=True)
class Entry:
    """One finished artifact, and the names that recipes' last runs know it by."""

    artifact: Artifact
    names: tuple[str, ...]
    """`RECIPE/NODE`, as `multi30k/clean:train`."""

    @property
    def id(self) -> str:
        """`clean/0123456789abcdef`."""
        return f"{self.artifact.manifest.stage}/{self.artifact.manifest.fingerprint[:SHORT]}"

    @property
    def num_bytes(self) -> int:
        """Of all its files."""
        return sum(file.bytes for file in self.artifact.manifest.files)

    @property
    def num_rows(self) -> int | None:
        """Of its tables that count as content; none where it has no table."""
        rows = [
            file.rows
            for file in self.artifact.manifest.files
            if file.rows is not None and not file.path.startswith("rejected/")
        ]
        return sum(rows) if rows else None


@dataclass(frozen=True)
class Inventory:
    """All artifacts of a root, in the order of the stages, the oldest first."""

    root: Path
    entries: tuple[Entry, ...]
    latest: str | None
    """The recipe that ran last."""

    def named(self, name: str) -> list[Entry]:
        """The artifacts that a person means.

        Args:
            name: `STAGE` or `STAGE:SOURCE`, of the recipe that ran last; `RECIPE/STAGE[:SOURCE]`; or
                `STAGE/HEX`, the beginning of a fingerprint.

        Raises:
            InputError: If there is none.
        """
        first, slash, rest = name.partition("/")
        if slash and first in STAGE_NAMES:
            found = [entry for entry in self.entries if entry.id.startswith(name) and rest]
        else:
            recipe, node = (first, rest) if slash else (self.latest, first)
            found = [entry for entry in self.entries if _has_name(entry, recipe, node)]
        if not found:
            raise InputError(
                f"No artifact `{name}` is in {self.root}. It must read STAGE, STAGE:SOURCE, "
                "RECIPE/STAGE or STAGE/FINGERPRINT; `traduko artifacts list` shows what is there."
            )
        return found

    def find(self, stage: str, fingerprint: str) -> Entry | None:
        """One artifact by its whole fingerprint."""
        for entry in self.entries:
            manifest = entry.artifact.manifest
            if (manifest.stage, manifest.fingerprint) == (stage, fingerprint):
                return entry
        return None

    def unneeded(self) -> list[Entry]:
        """What the last run of no recipe used, and nothing that it used was made from."""
        needed = {entry.id for entry in self.entries if entry.names}
        for entry in reversed(self.entries):
            if entry.id in needed:
                inputs = entry.artifact.manifest.inputs
                needed.update(_id(name, fingerprint) for name, fingerprint, _ in inputs)
        return [entry for entry in self.entries if entry.id not in needed]


def take_stock(root: Path) -> Inventory:
    """Look through a root.

    Raises:
        InputError: If it is no folder.
    """
    if not root.is_dir():
        raise InputError(f"The root {root} must be a folder of artifacts, but is not there.")
    records = sorted((root / "runs").glob("*.json"), key=lambda path: path.stat().st_mtime)
    names: dict[str, list[str]] = {}
    for path in records:
        for node, known in read_record(path).items():
            names.setdefault(_id(node, known["fingerprint"]), []).append(f"{path.stem}/{node}")
    found = sorted(_artifacts(root), key=_order)
    entries = [
        Entry(artifact, tuple(names.get(_id(artifact.manifest.stage, fingerprint), ())))
        for artifact in found
        for fingerprint in [artifact.manifest.fingerprint]
    ]
    return Inventory(root, tuple(entries), records[-1].stem if records else None)


def damage(artifact: Artifact) -> str:
    """What is wrong with its files, every byte looked at; empty if nothing is."""
    try:
        artifact.verify(deep=True)
    except Damaged as damaged:
        return str(damaged)
    return ""


def lineage(inventory: Inventory, entry: Entry, depth: int = 0) -> Iterator[tuple[int, str]]:
    """What an artifact was made from, back to files and addresses: depth and a line for each."""
    manifest = entry.artifact.manifest
    yield depth, f"{entry.id}  {manifest.started_at}  on {manifest.host}"
    for file in files_of(manifest.stats).values():
        yield depth + 1, f"{file['address']}  sha256 {file['sha256'][:SHORT]}…"
    for name, fingerprint, _ in manifest.inputs:
        made_from = inventory.find(name.partition(":")[0], fingerprint)
        if made_from:
            yield from lineage(inventory, made_from, depth + 1)
        else:
            yield depth + 1, f"{_id(name, fingerprint)}  ({name}) is not here any more"


def files_of(stats: Json) -> dict[str, Json]:
    """Of a download's statistics its files, by their place: each with `address` and `sha256`."""
    return {
        place: file
        for place, file in stats.items()
        if isinstance(file, dict) and {"address", "sha256"} <= file.keys()
    }


def remove(root: Path, entries: Sequence[Entry]) -> None:
    """Remove artifacts. Each goes at once: its manifest first.

    Raises:
        TradukoError: If a run is at work in the root.
    """
    _refuse_if_busy(root)
    for entry in entries:
        place = entry.artifact.folder.parent
        (place / MANIFEST).unlink()
        shutil.rmtree(place)


def _artifacts(root: Path) -> Iterator[Artifact]:
    for path in root.glob(f"*/*/{MANIFEST}"):
        if path.parts[-3] in STAGE_NAMES:
            try:
                manifest = Manifest.read(path)
            except ValueError:
                continue  # a run sets it aside and says so
            yield Artifact(path.parent / manifest.attempt, manifest)


def _order(artifact: Artifact) -> tuple[int, str, str]:
    manifest = artifact.manifest
    return STAGE_NAMES.index(manifest.stage), manifest.started_at, manifest.fingerprint


def _has_name(entry: Entry, recipe: str | None, node: str) -> bool:
    nodes = _nodes_of(entry.names, recipe)
    return any(node in {name, name.partition(":")[0]} for name in nodes)


def _nodes_of(names: Iterable[str], recipe: str | None) -> list[str]:
    parts = (name.partition("/") for name in names)
    return [node for owner, _, node in parts if owner == recipe]


def _id(node: str, fingerprint: str) -> str:
    return f"{node.partition(':')[0]}/{fingerprint[:SHORT]}"


def _refuse_if_busy(root: Path) -> None:
    for path in (root / "locks").glob("*"):
        with path.open("a", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TradukoError(
                    f"A run is at work in {root} ({path.name}). Nothing was removed; try again "
                    "when it has ended."
                ) from None
