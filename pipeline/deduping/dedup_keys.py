"""The keys of all rows, one file a span: what `dedup` compares in place of text."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.deduping.firsts import save, write_keys
from pipeline.deduping.match_keys import KEY, Keys, hash_pairs, join_keys
from pipeline.deduping.overlap import SideKeys, side_keys, unescaped
from pipeline.deduping.spans import Span, read_span

EXACT, NEAR, SRC = "duplicate", "near_duplicate", "src"
"""Keys of a pair as it is, of the letters and digits of both sides, of those of the source side."""


@dataclass(frozen=True)
class Scratch:
    """Where the numbers are while the stage runs."""

    folder: Path

    def path(self, kind: str, what: str, index: int) -> Path:
        """One of the numbered files of a kind of key."""
        return self.folder / f"{kind}-{what}-{index:05d}.npy"


class Wanted(NamedTuple):
    """Which keys are needed."""

    kinds: tuple[str, ...]
    """Of `EXACT`, `NEAR` and `SRC`."""
    sides: bool
    """Those of each side, in the order of rows."""
    unescaped: bool
    """And those of the sides as they are without HTML entities."""


def write_span_keys(span: Span, wanted: Wanted, scratch: Scratch) -> None:
    """Store all the keys of a span that are wanted."""
    exact, sides, forms = [], [], []
    for batch in read_span(span):
        src, tgt = batch["src"], batch["tgt"]
        if EXACT in wanted.kinds:
            exact.append(hash_pairs(src, tgt))
        if wanted.sides:
            sides.append(side_keys(src, tgt))
        if wanted.unescaped:
            forms.append(side_keys(unescaped(src), unescaped(tgt)))
    if exact:
        _write(EXACT, np.concatenate(exact), span, scratch)
    if sides:
        _write_sides(sides, wanted, span, scratch)
    if forms:
        save(scratch.path("sides", "unescaped", span.number), _stacked(forms))


def read_sides(scratch: Scratch, what: str, index: int) -> SideKeys:
    """The keys of a span's sides, in the order of rows; mapped, not read."""
    return SideKeys(*np.load(scratch.path("sides", what, index), mmap_mode="r"))


def _write_sides(parts: list[SideKeys], wanted: Wanted, span: Span, scratch: Scratch) -> None:
    stacked = _stacked(parts)
    save(scratch.path("sides", "keys", span.number), stacked)
    if NEAR in wanted.kinds:
        _write(NEAR, join_keys(*stacked), span, scratch)
    if SRC in wanted.kinds:
        _write(SRC, stacked[0], span, scratch)


def _write(kind: str, keys: Keys, span: Span, scratch: Scratch) -> None:
    is_repeated = write_keys(scratch.path(kind, "keys", span.number), keys, span.start)
    save(scratch.path(kind, "repeated", span.number), is_repeated)


def _stacked(parts: list[SideKeys]) -> Keys:
    src, tgt = (np.concatenate(side) for side in zip(*parts, strict=True))
    stacked = np.empty((2, len(src)), dtype=KEY)
    stacked[0], stacked[1] = src, tgt
    return stacked
