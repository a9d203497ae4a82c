"""Stage 3: pairs that are there already, and pairs that dev or test sets hold.

Out: `part-*.parquet` of kept rows, `rejected/part-*.parquet` with the rule: `duplicate` (an earlier
row has both sides) or `overlap` (either side equals one of a dev or test set).
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from pipeline.artifact import Artifact, Json
from pipeline.config import DedupConfig
from pipeline.corpus import read_pairs
from pipeline.errors import CorpusError
from pipeline.job import Job
from pipeline.tables import PAIRS, REJECTED, ParquetShards, read_batches
from pipeline.text import match_key


def dedup(
    config: DedupConfig,
    cleaned: Sequence[Artifact],
    held_out: Mapping[str, Artifact],
    job: Job,
) -> Json:
    """Keep the first of equal pairs, and nothing that a dev or test set holds.

    The first is the one that comes first in the recipe's sources, then in its file, so the result
    does not depend on how the rows were cut. Memory: 16 bytes a row, plus the dev and test sets.

    Args:
        config: The recipe's section.
        cleaned: Artifacts of `clean`, in the recipe's order.
        held_out: Downloaded dev and test sets, by name.
        job: The workplace.
    """
    is_duplicate = _find_duplicates(cleaned) if config.exact else None
    overlap = _Overlap(held_out if config.decontaminate else {})
    rejected_by: Counter[str] = Counter()
    num_rows = 0
    total = sum(artifact.stats["rows_kept"] for artifact in cleaned)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(ParquetShards(job.out, PAIRS))
        rejected = stack.enter_context(ParquetShards(job.out / "rejected", REJECTED))
        for batch in _rows(cleaned):
            rules = overlap.find(batch)
            if is_duplicate is not None:
                rules[is_duplicate[num_rows : num_rows + batch.num_rows]] = "duplicate"
            keep = rules == ""
            kept.write(batch.filter(pa.array(keep)))
            drop = batch.filter(pa.array(~keep))
            rejected.write(drop.append_column("rule", pa.array(rules[~keep], pa.string())))
            rejected_by.update(rules[~keep].tolist())
            num_rows += batch.num_rows
            job.progress(num_rows, total, "rows")
    assert num_rows == total == kept.num_rows + rejected.num_rows, "rows are lost"
    if not kept.num_rows:
        raw = sum(artifact.stats["rows_in"] for artifact in cleaned)
        raise CorpusError(
            f"No training pair is left: of {raw}, `clean` dropped {raw - num_rows} and `dedup` "
            f"{num_rows}. Look at the rejected rows, or give more text."
        )
    return {
        "rows_in": num_rows,
        "rows_kept": kept.num_rows,
        "rejected": dict(sorted(rejected_by.items())),
        "overlap": dict(sorted(overlap.rows_by_set.items())),
    }


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
            for batch in read_pairs(artifact.path("src"), artifact.path("tgt")):
                for side, sets in self._sets_by_key.items():
                    for text in batch[side].to_pylist():
                        sets.setdefault(match_key(text), set()).add(name)

    def find(self, batch: pa.RecordBatch) -> np.ndarray:
        """A rule name for each row: `overlap` or nothing."""
        rules = np.full(batch.num_rows, "", dtype=object)
        if not self.rows_by_set:
            return rules
        src, tgt = (self._found(side, batch[side].to_pylist()) for side in ("src", "tgt"))
        for row, (in_src, in_tgt) in enumerate(zip(src, tgt, strict=True)):
            if in_src or in_tgt:
                rules[row] = "overlap"
                self.rows_by_set.update(in_src | in_tgt)
        return rules

    def _found(self, side: str, texts: Sequence[str]) -> list[set[str]]:
        sets = self._sets_by_key[side]
        nothing: set[str] = set()
        return [sets.get(match_key(text), nothing) for text in texts]
