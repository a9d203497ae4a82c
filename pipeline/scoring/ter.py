"""Translation edit rate (Snover et al., 2006), counted as sacreBLEU counts it, in less time.

The number of edits is that of `sacrebleu.metrics.ter`, whose limits are Tercom's; a test compares
the two. There each place that a phrase could be moved to is tried by itself, in Python: seconds for
one bad sentence, hours for the output of a model that has only begun to learn. Here all places are
tried at once.

Axes: C candidates (hypotheses after one move), H words of the hypothesis, R of the reference + 1.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_MOVED_WORDS = 10
MAX_MOVED_BY = 50
MAX_CANDIDATES = 1_000
BEAM_WIDTH = 25
_FAR = 1 << 28  # more than any distance: cells outside of the beam

Ints = npt.NDArray[np.int32]


class Move(NamedTuple):
    """Words of the hypothesis, and where they would go."""

    start: int
    length: int
    target: int


class Alignment(NamedTuple):
    """How the hypothesis is edited into the reference."""

    hyp_of_ref: dict[int, int]
    """By word of the reference, the word of the hypothesis that it goes with or comes after."""
    hyp_is_wrong: list[bool]
    ref_is_wrong: list[bool]


def num_edits(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """The least edits found: words inserted, deleted or replaced, and phrases moved."""
    if not reference:
        return len(hypothesis)
    known: dict[str, int] = {}
    hyp, ref = (
        np.array([known.setdefault(word, len(known)) for word in words], dtype=np.int32)
        for words in (hypothesis, reference)
    )
    num_moves = num_tried = 0
    while num_tried < MAX_CANDIDATES:
        rows = _matrix(hyp[None], ref)
        distance = int(rows[-1][0, -1])
        moves, tried = _moves(hyp, ref, _align(np.concatenate(rows), hyp, ref), num_tried)
        num_tried += tried
        moved, gain = _best(hyp, ref, moves, distance)
        if gain <= 0 or num_tried >= MAX_CANDIDATES:
            break
        hyp, num_moves = moved, num_moves + 1
    return num_moves + int(_matrix(hyp[None], ref)[-1][0, -1])


def _best(hyp: Ints, ref: Ints, moves: Sequence[Move], distance: int) -> tuple[Ints, int]:
    """The hypothesis after the best move, and by how much the distance fell."""
    if not moves:
        return hyp, 0
    moved_CH = np.stack([_moved(hyp, move) for move in moves])
    gains = (distance - _matrix(moved_CH, ref)[-1][:, -1]).tolist()
    best = max(
        range(len(moves)),
        key=lambda at: (gains[at], moves[at].length, -moves[at].start, -moves[at].target),
    )
    return moved_CH[best], gains[best]


def _moves(hyp: Ints, ref: Ints, alignment: Alignment, num_tried: int) -> tuple[list[Move], int]:
    """Moves that may help, each once; and how many there are with those that come again."""
    found: dict[Move, None] = {}
    tried = 0
    for start, start_ref, length in _matches(hyp.tolist(), ref.tolist()):
        for target in _targets(alignment, start, start_ref, length):
            found[Move(start, length, target)] = None
            tried += 1
        if num_tried + tried >= MAX_CANDIDATES:
            break
    return list(found), tried


def _targets(alignment: Alignment, start: int, start_ref: int, length: int) -> Iterator[int]:
    """Where a phrase may go; nowhere where it, or the place, is right already."""
    hyp_of_ref, hyp_is_wrong, ref_is_wrong = alignment
    if not any(hyp_is_wrong[start : start + length]):
        return
    if not any(ref_is_wrong[start_ref : start_ref + length]):
        return
    if start <= hyp_of_ref[start_ref] < start + length:
        return
    before = -1
    for at in range(start_ref - 1, start_ref + length):
        target = 0 if at == -1 else hyp_of_ref[at] + 1
        if target != before:
            yield target
        before = target


def _matches(hyp: list[int], ref: list[int]) -> Iterator[tuple[int, int, int]]:
    """Starts and lengths of phrases that both have."""
    places: dict[int, list[int]] = {}
    for at, word in enumerate(ref):
        places.setdefault(word, []).append(at)
    for start, word in enumerate(hyp):
        for start_ref in places.get(word, ()):
            if abs(start_ref - start) > MAX_MOVED_BY:
                continue
            longest = min(MAX_MOVED_WORDS, len(hyp) - start, len(ref) - start_ref)
            for length in range(1, longest + 1):
                if hyp[start + length - 1] != ref[start_ref + length - 1]:
                    break
                yield start, start_ref, length


def _moved(words: Ints, move: Move) -> Ints:
    start, length, target = move
    phrase = words[start : start + length]
    if target < start:
        parts = words[:target], phrase, words[target:start], words[start + length :]
    elif target > start + length:
        parts = words[:start], words[start + length : target], phrase, words[target:]
    else:  # within itself, as Tercom has it
        end = length + target
        parts = words[:start], words[start + length : end], phrase, words[end:]
    return np.concatenate(parts)


def _matrix(hyps_CH: Ints, ref: Ints) -> list[Ints]:
    """Edit distances of the first 0, 1, … words of each hypothesis to those of the reference.

    Only cells near the diagonal are looked at, as in Tercom. Returns [C, R] for each number of
    words: all of them where C is 1, else the last.
    """
    count, size = hyps_CH.shape
    steps_R = np.arange(len(ref) + 1, dtype=np.int32)
    rows = [np.tile(steps_R, (count, 1))]
    ratio = len(ref) / size if size else 1
    beam = math.ceil(ratio / 2 + BEAM_WIDTH) if ratio / 2 > BEAM_WIDTH else BEAM_WIDTH
    for at in range(1, size + 1):
        middle = math.floor(at * ratio)
        low = max(0, middle - beam)
        high = len(ref) + 1 if at == size else min(len(ref) + 1, middle + beam)
        row = _next_row(rows[-1], hyps_CH[:, at - 1, None] != ref, steps_R, (low, high))
        rows = [*rows, row] if count == 1 else [row]
    return rows


def _next_row(
    above_CR: Ints, differ: npt.NDArray[np.bool_], steps_R: Ints, beam: tuple[int, int]
) -> Ints:
    low, high = beam
    row_CR = above_CR + 1
    np.minimum(row_CR[:, 1:], above_CR[:, :-1] + differ, out=row_CR[:, 1:])
    row_CR[:, :low] = row_CR[:, high:] = _FAR
    row_CR -= steps_R  # an insertion costs a step to the right: so the least so far is passed on
    row_CR[:, :low] = _FAR
    np.minimum.accumulate(row_CR, axis=1, out=row_CR)
    row_CR += steps_R
    row_CR[:, :low] = row_CR[:, high:] = _FAR
    return row_CR


def _align(distances_HR: Ints, hyp: Ints, ref: Ints) -> Alignment:
    """Follow the edits back: a word kept or replaced first, then one deleted, then one inserted."""
    distances, steps = distances_HR.tolist(), []
    at_hyp, at_ref = len(hyp), len(ref)
    while at_hyp or at_ref:
        here, step = distances[at_hyp][at_ref], "insert"
        if at_hyp and at_ref:
            differ = int(hyp[at_hyp - 1] != ref[at_ref - 1])
            if distances[at_hyp - 1][at_ref - 1] + differ == here:
                step = "replace" if differ else "keep"
        if step == "insert" and at_hyp and distances[at_hyp - 1][at_ref] + 1 == here:
            step = "delete"
        steps.append(step)
        at_hyp -= step != "insert"
        at_ref -= step != "delete"
    return _alignment(reversed(steps))


def _alignment(steps: Iterator[str]) -> Alignment:
    alignment = Alignment({}, [], [])
    for step in steps:
        is_wrong = step != "keep"
        if step != "insert":
            alignment.hyp_is_wrong.append(is_wrong)
        if step != "delete":
            alignment.hyp_of_ref[len(alignment.ref_is_wrong)] = len(alignment.hyp_is_wrong) - 1
            alignment.ref_is_wrong.append(is_wrong)
    return alignment
