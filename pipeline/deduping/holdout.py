"""Dev and test sets out of the training text, for recipes without their own."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.config import HoldoutConfig
from pipeline.deduping.dedup_keys import Scratch, read_sides
from pipeline.deduping.overlap import Overlap, keys_as_bytes
from pipeline.deduping.spans import Span, read_span
from pipeline.errors import CorpusError

_ROWS_AT_ONCE = 4_096


class Candidate(NamedTuple):
    """A row that may be held out, and the keys of its sides."""

    row: int
    src: bytes
    tgt: bytes
    unescaped_src: bytes
    unescaped_tgt: bytes


class TakenFrom(NamedTuple):
    """Rows to read of one span."""

    span: Span
    rows: tuple[int, ...]


def choose(
    config: HoldoutConfig,
    ordered: Sequence[str],
    spans: Sequence[Span],
    scratch: Scratch,
    overlap: Overlap,
) -> dict[int, str]:
    """Choose the rows, and add what they hold to what must not overlap.

    Rows come in the order of their source side's key, the first row of each key: so the choice
    depends on no other row, and hardly changes when text is added. A row that shares a side with a
    set is left. The test set comes first: it stays the same whatever the size of the dev set.

    Args:
        config: The recipe's section.
        ordered: Files of the first rows of all source keys, in the order of keys.
        spans: All rows.
        scratch: Holds the keys of their sides.
        overlap: What the sets hold that there are already.

    Returns:
        The set of each row taken.

    Raises:
        CorpusError: If there are too few.
    """
    wanted = ["test"] * config.test + ["dev"] * config.dev
    taken: dict[int, str] = {}
    for candidate in _candidates(ordered, spans, scratch):
        if len(taken) == len(wanted):
            break
        if not overlap.holds(candidate.src, candidate.tgt):
            name = taken[candidate.row] = wanted[len(taken)]
            _, src, tgt, *forms = candidate
            overlap.add(name, (src, forms[0]), (tgt, forms[1]))
    if len(taken) < len(wanted):
        raise CorpusError(
            f"`dedup.holdout` asks for {len(wanted)} pairs that share no side, but the training text "
            f"has only {len(taken)}. Lower it, give more text, or name dev and test sets."
        )
    return taken


def read_taken(task: TakenFrom) -> list[tuple[str, str]]:
    """Both sides of some rows of a span, in the order of rows."""
    wanted = np.array(task.rows, dtype=np.int64)
    pairs: list[tuple[str, str]] = []
    start = task.span.start
    for batch in read_span(task.span):
        here = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
        found = batch.take(here - start)
        pairs += zip(found["src"].to_pylist(), found["tgt"].to_pylist(), strict=True)
        start += batch.num_rows
    return pairs


def write_set(folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write a set as `download` would store it."""
    folder.mkdir(parents=True)
    for index, side in enumerate(("src", "tgt")):
        # Text that was not normalised may hold what ends a line.
        lines = [pair[index].replace("\r", " ").replace("\n", " ") + "\n" for pair in pairs]
        (folder / side).write_text("".join(lines), encoding="utf-8", newline="\n")


def _candidates(
    ordered: Sequence[str], spans: Sequence[Span], scratch: Scratch
) -> Iterator[Candidate]:
    for path in ordered:
        rows = np.load(path, mmap_mode="r")
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = np.asarray(rows[at : at + _ROWS_AT_ONCE]).astype(np.int64)
            keys = _keys_of(some, spans, scratch)
            yield from (Candidate(row, *keys[row]) for row in some.tolist())


def _keys_of(
    rows: npt.NDArray[np.int64], spans: Sequence[Span], scratch: Scratch
) -> dict[int, list[bytes]]:
    """Keys of the sides of some rows, wherever they are."""
    keys: dict[int, list[bytes]] = {}
    starts = np.array([span.start for span in spans])
    places = np.searchsorted(starts, rows, side="right") - 1
    for index in np.unique(places).tolist():
        here = rows[places == index]
        columns = [
            keys_as_bytes(side[here - spans[index].start])
            for what in ("keys", "unescaped")
            for side in read_sides(scratch, what, index)
        ]
        keys.update(zip(here.tolist(), map(list, zip(*columns, strict=True)), strict=True))
    return keys
