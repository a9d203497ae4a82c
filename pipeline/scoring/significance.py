"""How sure a score is, and a difference of two: resampling of sentences.

The numbers drawn are sacreBLEU's for the seed that it has by default (it would take another one
from the environment), so intervals and p-values are those that its own tools print.

Axes: N sentences, C counts of a metric, R resamples or trials.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

SEED = 12345
BOOTSTRAP_SAMPLES = 1_000
TRIALS = 10_000
_TRIALS_AT_ONCE = 512  # a multiple of 32: NumPy draws 32 truth values from one number

Counts: TypeAlias = npt.NDArray[np.float64]
ScoreOf: TypeAlias = Callable[[Sequence[float]], float]
"""A score from a metric's counts, summed over sentences."""


class Interval(NamedTuple):
    """Bounds of 95 %."""

    low: float
    high: float


def interval(counts_NC: Counts, score_of: ScoreOf) -> Interval:
    """The bootstrap's interval of a score (Koehn, 2004), about the mean of the resamples."""
    scores = np.array([score_of(sums.tolist()) for sums in resampled(counts_NC)])
    ranked = np.sort(scores)
    beyond = len(ranked) // 40
    half_width = 0.5 * (ranked[-1 - beyond] - ranked[beyond])
    return Interval(float(scores.mean() - half_width), float(scores.mean() + half_width))


def paired_bootstrap(a_NC: Counts, b_NC: Counts, score_of: ScoreOf) -> float:
    """The two-sided p-value of the difference of two systems, by resampling (Koehn, 2004)."""
    a, b = (_scores(resampled(counts), score_of) for counts in (a_NC, b_NC))
    differences = np.abs(a - b)
    return _p_value(differences - differences.mean(), _difference(a_NC, b_NC, score_of))


def approximate_randomisation(a_NC: Counts, b_NC: Counts, score_of: ScoreOf) -> float:
    """The two-sided p-value of the difference of two systems, by exchanging their sentences.

    Riezler and Maxwell (2005).
    """
    both_NC = a_NC + b_NC
    shuffled = [takes_RN @ a_NC + ~takes_RN @ b_NC for takes_RN in _coins(len(a_NC))]
    first_RC = np.concatenate(shuffled)
    first, second = (
        _scores(sums_RC, score_of) for sums_RC in (first_RC, both_NC.sum(0) - first_RC)
    )
    return _p_value(np.abs(first - second), _difference(a_NC, b_NC, score_of))


def resampled(counts_NC: Counts) -> Iterator[Counts]:
    """The sums of each resample of as many sentences; memory does not grow with their number."""
    draw = np.random.default_rng(SEED)
    size = len(counts_NC)
    for _ in range(BOOTSTRAP_SAMPLES):
        times_N = np.bincount(draw.choice(size, size), minlength=size)
        yield times_N @ counts_NC


def _coins(size: int) -> Iterator[npt.NDArray[np.bool_]]:
    draw = np.random.default_rng(SEED)
    for start in range(0, TRIALS, _TRIALS_AT_ONCE):
        rows = min(_TRIALS_AT_ONCE, TRIALS - start)
        yield draw.integers(2, size=(rows, size), dtype=bool)


def _scores(sums: Iterator[Counts] | Counts, score_of: ScoreOf) -> Counts:
    return np.array([score_of(each.tolist()) for each in sums])


def _difference(a_NC: Counts, b_NC: Counts, score_of: ScoreOf) -> float:
    return abs(score_of(a_NC.sum(0).tolist()) - score_of(b_NC.sum(0).tolist()))


def _p_value(found: Counts, difference: float) -> float:
    """The share of what chance gives that is as large as what was found.

    sacreBLEU counts only what is larger, which calls two equal systems different.
    """
    return float((np.count_nonzero(found >= difference) + 1) / (len(found) + 1))
