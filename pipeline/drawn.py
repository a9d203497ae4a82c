"""Some rows of an artifact, for a person to read."""

from operator import itemgetter

import numpy as np
import pyarrow.compute as pc

from pipeline.artifact import Artifact, Json
from pipeline.errors import InputError
from pipeline.pieces.row_hash import row_hashes
from pipeline.tables import read_batches


def draw_rows(artifact: Artifact, rule: str | None, number: int) -> list[Json]:
    """Some rows of text, drawn by a hash of their place, in the order of the corpus.

    Args:
        artifact: Of `clean` or `dedup`.
        rule: Draw from the rows that this rule rejected; none = from the kept ones.
        number: At most so many.

    Raises:
        InputError: If the artifact holds no rows of text, or the rule rejected none.
    """
    paths = artifact.paths("rejected/part-*.parquet" if rule else "part-*.parquet")
    if not paths:
        raise InputError(
            f"{artifact.folder} holds no rows of text: name an artifact of `clean` or `dedup`."
        )
    if rule:
        _check_rule(artifact, rule)
    drawn: list[tuple[int, str, int, Json]] = []
    for batch in read_batches(paths):
        rows = batch.filter(pc.equal(batch["rule"], rule)) if rule else batch
        hashes = row_hashes(rows["source"], rows["line"].to_numpy())
        first = np.argsort(hashes, kind="stable")[:number]
        for hash_, row in zip(hashes[first].tolist(), rows.take(first).to_pylist(), strict=True):
            drawn.append((hash_, row["source"], row["line"], row))
        drawn = sorted(drawn, key=itemgetter(0))[:number]
    return [row for *_, row in sorted(drawn, key=itemgetter(1, 2))]


def _check_rule(artifact: Artifact, rule: str) -> None:
    known = artifact.stats["rejected"]
    if rule not in known:
        rules = ", ".join(f"{name} ({count:,})" for name, count in known.items()) or "none"
        raise InputError(
            f"No row was rejected by `{rule}` in {artifact.folder}. Rules that rejected rows: "
            f"{rules}."
        )
