"""Test sets translated and counted in portions, each wherever a worker is free.

A set's portions follow from its text alone. So its translations are the same on any number of
workers, and what was counted is merged in the set's own order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from model.checkpoint import load_weights
from model.config import SearchConfig
from pipeline.job import Job
from pipeline.scoring.metrics import Kind, count_all
from pipeline.scoring.significance import Counts
from pipeline.translating.bundle import Bundle, load_bundle

ROWS_PER_PORTION = 128


class ScoredSet(NamedTuple):
    """Rows to translate, and what their translations are held against."""

    name: str
    sources: Sequence[str]
    references: Sequence[str]
    kind: Kind


class Translated(NamedTuple):
    """A test set's translations."""

    hypotheses: list[str]
    """One for each row, in their order; white space is single spaces."""
    counts: dict[str, Counts]
    """By metric, a row each."""


class Portion(NamedTuple):
    """Some rows of a test set."""

    rows: tuple[int, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True)
class Translation:
    """Translates portions: what a worker is sent."""

    bundle: Path
    weights: Path | None
    """A checkpoint whose weights take the place of the bundle's."""
    search: SearchConfig
    tokens_per_batch: int
    device: str

    def __call__(self, portion: Portion) -> Translated:
        """Translate a portion, and count what the metrics need."""
        bundle = _load(self.bundle, self.weights, self.device)
        texts = bundle.translate(portion.sources, self.search, self.tokens_per_batch)
        hypotheses = [" ".join(text.split()) for text in texts]
        return Translated(hypotheses, count_all(portion.kind, hypotheses, portion.references))


def translate_sets(
    translation: Translation, sets: Sequence[ScoredSet], job: Job, note: str = ""
) -> Iterator[tuple[ScoredSet, Translated]]:
    """Each set with its translations."""
    portions = [portion for each in sets for portion in _portions(each)]
    total = sum(len(portion.rows) for portion in portions)
    shown = np.cumsum([0, *(len(portion.rows) for portion in portions)])
    done = job.map(
        translation,
        portions,
        lambda number: job.progress(float(shown[number]), total, "sentences", note),
        use_gpu=translation.device != "cpu",
    )
    found = zip(portions, done, strict=True)
    for each in sets:
        mine = [next(found) for _ in range(_num_portions(each))]
        yield each, _merged(len(each.sources), mine)


def _num_portions(each: ScoredSet) -> int:
    return -(-len(each.sources) // ROWS_PER_PORTION)


def _portions(each: ScoredSet) -> Iterator[Portion]:
    """Rows of about one length together, the longest first: so the last to end is a short one."""
    rows = range(len(each.sources))
    ranked = sorted(rows, key=lambda row: (-len(each.sources[row]), row))
    for start in range(0, len(ranked), ROWS_PER_PORTION):
        mine = tuple(ranked[start : start + ROWS_PER_PORTION])
        sources, references = (
            tuple(texts[row] for row in mine) for texts in (each.sources, each.references)
        )
        yield Portion(mine, sources, references, each.kind)


def _merged(size: int, parts: Sequence[tuple[Portion, Translated]]) -> Translated:
    hypotheses = [""] * size
    counts: dict[str, Counts] = {}
    for portion, translated in parts:
        for row, hypothesis in zip(portion.rows, translated.hypotheses, strict=True):
            hypotheses[row] = hypothesis
        _place(counts, size, portion.rows, translated.counts)
    return Translated(hypotheses, counts)


def _place(
    counts: dict[str, Counts], size: int, rows: Sequence[int], part: Mapping[str, Counts]
) -> None:
    for name, values in part.items():
        whole = counts.setdefault(name, np.zeros((size, values.shape[1])))
        whole[list(rows)] = values


@lru_cache(maxsize=1)
def _load(folder: Path, weights: Path | None, device: str) -> Bundle:
    """A worker keeps the last model that it was asked for."""
    bundle = load_bundle(folder, device)
    if weights:
        bundle.model.load_state_dict(load_weights(weights))
    return bundle
