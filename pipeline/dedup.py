"""Stage 3: pairs that are there already, and pairs that dev or test sets hold.

Out: `part-*.parquet` of kept rows, `rejected/part-*.parquet` with the rule: `duplicate` (an earlier
row has both sides) or `overlap` (either side equals one of a dev or test set). And for recipes
without dev or test sets those that the holdout makes, as `download` would store them:
`holdout/dev/src`, `holdout/dev/tgt`, `holdout/test/…`.
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.artifact import Artifact, Json
from pipeline.config import DedupConfig, HoldoutConfig
from pipeline.errors import CorpusError
from pipeline.formats import read_corpus
from pipeline.job import Job
from pipeline.tables import PAIRS, REJECTED, ParquetShards, read_batches
from pipeline.text import match_key, unescape_entities


def dedup(
    config: DedupConfig,
    cleaned: Sequence[Artifact],
    held_out: Mapping[str, Artifact],
    job: Job,
) -> Json:
    """Keep the first of equal pairs, and nothing that a dev or test set holds.

    The first is the one that comes first in the recipe's sources, then in its file, so the result
    does not depend on how the rows were cut. Memory: 16 bytes a row (and as much again for a while),
    plus the dev and test sets.

    Args:
        config: The recipe's section.
        cleaned: Artifacts of `clean`, in the recipe's order.
        held_out: Downloaded dev and test sets, by name.
        job: The workplace.
    """
    is_duplicate = _find_duplicates(cleaned) if config.exact else None
    overlap = _Overlap(held_out if config.decontaminate else {})
    taken = _hold_out(config.holdout, cleaned, overlap, job)
    taken_rows = np.array(sorted(taken), dtype=np.int64)
    rejected_by: Counter[str] = Counter()
    num_rows = 0
    total = sum(artifact.stats["rows_kept"] for artifact in cleaned)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(ParquetShards(job.out, PAIRS))
        rejected = stack.enter_context(ParquetShards(job.out / "rejected", REJECTED))
        for batch in _rows(cleaned):
            start, num_rows = num_rows, num_rows + batch.num_rows
            is_taken = np.zeros(batch.num_rows, dtype=bool)
            is_taken[_between(taken_rows, start, num_rows) - start] = True
            rules = overlap.find(batch, is_taken)
            if is_duplicate is not None:
                rules[is_duplicate[start:num_rows]] = "duplicate"
            is_rejected = rules != ""
            kept.write(batch.filter(pa.array(~is_rejected & ~is_taken)))
            drop = batch.filter(pa.array(is_rejected))
            rejected.write(drop.append_column("rule", pa.array(rules[is_rejected], pa.string())))
            rejected_by.update(rules[is_rejected].tolist())
            job.progress(num_rows, total, "rows")
    assert num_rows == total == kept.num_rows + rejected.num_rows + len(taken), "rows are lost"
    if not kept.num_rows:
        raise CorpusError(_nothing_left(cleaned, num_rows, len(taken)))
    return {
        "rows_in": num_rows,
        "rows_kept": kept.num_rows,
        "held_out": dict(sorted(Counter(row.set for row in taken.values()).items())),
        "rejected": dict(sorted(rejected_by.items())),
        "overlap": dict(sorted(overlap.rows_by_set.items())),
    }


def _nothing_left(cleaned: Sequence[Artifact], num_rows: int, num_taken: int) -> str:
    raw = sum(artifact.stats["rows_in"] for artifact in cleaned)
    taken = f" ({num_taken} of them for `dedup.holdout`)" if num_taken else ""
    return (
        f"No training pair is left: of {raw}, `clean` dropped {raw - num_rows} and `dedup` "
        f"{num_rows}{taken}. Look at the rejected rows, or give more text."
    )


def _between(numbers: np.ndarray, start: int, end: int) -> np.ndarray:
    """Of sorted numbers those from `start` to below `end`."""
    return numbers[np.searchsorted(numbers, start) : np.searchsorted(numbers, end)]


def _rows(cleaned: Sequence[Artifact]) -> Iterator[pa.RecordBatch]:
    for artifact in cleaned:
        yield from read_batches(artifact.paths("part-*.parquet"))


def _find_duplicates(cleaned: Sequence[Artifact]) -> np.ndarray:
    """For each row, whether an earlier one has the same two sides."""
    keys = bytearray()
    for batch in _rows(cleaned):
        for src, tgt in zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True):
            keys += hashlib.blake2b(f"{src}\n{tgt}".encode(), digest_size=16).digest()
    _, first = np.unique(np.frombuffer(keys, dtype="V16"), return_index=True)
    is_duplicate = np.ones(len(keys) // 16, dtype=bool)
    is_duplicate[first] = False
    return is_duplicate


class _Overlap:
    """Which rows have a side that a dev or test set holds."""

    def __init__(self, held_out: Mapping[str, Artifact]):
        self.rows_by_set: Counter[str] = Counter(dict.fromkeys(held_out, 0))
        self._sets_by_key: dict[str, dict[str, set[str]]] = {"src": {}, "tgt": {}}
        for name, artifact in held_out.items():
            for batch in read_corpus(artifact.folder):
                sides = (batch[side].to_pylist() for side in ("src", "tgt"))
                for src, tgt in zip(*sides, strict=True):
                    self.add(name, src, tgt)

    def add(self, name: str, src: str, tgt: str) -> None:
        """Take a pair of a set to what training pairs must not have."""
        self.rows_by_set[name] += 0
        for side, text in (("src", src), ("tgt", tgt)):
            for form in {text, unescape_entities(text)}:  # `clean` may have decoded it
                self._sets_by_key[side].setdefault(match_key(form), set()).add(name)

    def holds(self, src: str, tgt: str) -> bool:
        """Whether a set has either side."""
        sets = self._sets_by_key
        return match_key(src) in sets["src"] or match_key(tgt) in sets["tgt"]

    def find(self, batch: pa.RecordBatch, is_spared: np.ndarray) -> np.ndarray:
        """A rule name for each row: `overlap` or nothing."""
        rules = np.full(batch.num_rows, "", dtype=object)
        if not self.rows_by_set:
            return rules
        src, tgt = (self._found(side, batch[side].to_pylist()) for side in ("src", "tgt"))
        for row, (in_src, in_tgt) in enumerate(zip(src, tgt, strict=True)):
            if (in_src or in_tgt) and not is_spared[row]:
                rules[row] = "overlap"
                self.rows_by_set.update(in_src | in_tgt)
        return rules

    def _found(self, side: str, texts: Sequence[str]) -> list[set[str]]:
        sets = self._sets_by_key[side]
        nothing: set[str] = set()
        return [sets.get(match_key(text), nothing) for text in texts]


class _Taken(NamedTuple):
    """A row held out, and the set that it is for."""

    set: str
    src: str
    tgt: str


def _hold_out(
    config: HoldoutConfig, cleaned: Sequence[Artifact], overlap: _Overlap, job: Job
) -> dict[int, _Taken]:
    """Take dev and test sets out of the rows, write them, and add them to what must not overlap.

    Rows come in the order of a hash of their source side's key, the first row of each key: so the
    choice depends on no other row, and hardly changes when text is added. A row that shares a side
    with a set is left. The test set comes first: it stays the same whatever the size of the dev set.

    Returns:
        The rows taken, by their number.

    Raises:
        CorpusError: If there are too few.
    """
    wanted = [name for name in ("test", "dev") for _ in range(getattr(config, name))]
    if not wanted:
        return {}
    order = _in_key_order(cleaned, job)
    taken: dict[int, _Taken] = {}
    start, end = 0, 2 * len(wanted)
    while start < len(order) and len(taken) < len(wanted):
        candidates = order[start:end].tolist()
        texts = _texts(cleaned, candidates)
        for row in candidates:
            if len(taken) < len(wanted) and not overlap.holds(*texts[row]):
                taken[row] = _Taken(wanted[len(taken)], *texts[row])
                overlap.add(*taken[row])
        start, end = end, 2 * end
    if len(taken) < len(wanted):
        raise CorpusError(
            f"`dedup.holdout` asks for {len(wanted)} pairs that share no side, but the training text "
            f"has only {len(taken)}. Lower it, give more text, or name dev and test sets."
        )
    for name in set(wanted):
        _write_set(job.out / "holdout" / name, [taken[row] for row in sorted(taken)], name)
    return taken


def _in_key_order(cleaned: Sequence[Artifact], job: Job) -> np.ndarray:
    """The number of the first row of each source side, in the order of its key's hash."""
    hashes = bytearray()
    total = sum(artifact.stats["rows_kept"] for artifact in cleaned)
    for batch in _rows(cleaned):
        for src in batch["src"].to_pylist():
            hashes += hashlib.blake2b(match_key(src).encode(), digest_size=8).digest()
        job.progress(len(hashes) // 8, total, "rows", "choosing what to hold out")
    _, first = np.unique(np.frombuffer(hashes, dtype="<u8"), return_index=True)
    return first


def _texts(cleaned: Sequence[Artifact], rows: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Both sides of some rows."""
    wanted = np.sort(np.array(rows, dtype=np.int64))
    texts: dict[int, tuple[str, str]] = {}
    start = 0
    for batch in _rows(cleaned):
        end = start + batch.num_rows
        here = _between(wanted, start, end)
        found = batch.take(pa.array(here - start))
        sides = zip(found["src"].to_pylist(), found["tgt"].to_pylist(), strict=True)
        texts.update(zip(here.tolist(), sides, strict=True))
        start = end
    return texts


def _write_set(folder: Path, rows: Sequence[_Taken], name: str) -> None:
    folder.mkdir(parents=True)
    for side in ("src", "tgt"):
        texts = [getattr(row, side) for row in rows if row.set == name]
        # Text that was not normalised may hold what ends a line.
        lines = [text.replace("\r", " ").replace("\n", " ") + "\n" for text in texts]
        (folder / side).write_text("".join(lines), encoding="utf-8", newline="\n")
