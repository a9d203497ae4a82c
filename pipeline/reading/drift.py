"""Whether the two sides of a corpus stay in step: equal counts do not show it, their content does.

One line lost on one side moves every pair after it, and nothing else is wrong with the files. But
sentences and their translations have lengths that go together, and the same numbers in them. Both are
compared window by window, as they stand and with one side moved by up to three lines. A stretch
where a moved side fits better is shifted; one where lengths stop going together at all, in a corpus
where they do, is out of step. Lines so alike that they have no lengths to compare (a corpus sorted
by length) are judged by their numbers, over longer stretches.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
_Array = npt.NDArray[Any]

MAX_OFFSET = 3
"""Shifts by more lines than this are seen, but not told by how many."""

_WINDOW = 256
_OFFSETS = (0, *range(1, MAX_OFFSET + 1), *range(-1, -MAX_OFFSET - 1, -1))
# Of real corpora, no window's lengths correlate below 0.7 where they vary at all, nor does a moved
# side come within 0.25 of the unmoved one (captions, sentences, technical prose, news; de, en, fr).
_LOW_CORRELATION = 0.3
_MIN_GAIN = 0.25
_MIN_DEVIATION = 0.1  # of log lengths; below it there is nothing to correlate
_MIN_USUAL_CORRELATION = 0.5
_USUAL = 0.9  # quantile: most of a corpus may be out of step
_MIN_WINDOWS_SHIFTED = 2
_MIN_WINDOWS_OUT_OF_STEP = 4  # 1,024 pairs
_MAX_GAP_WINDOWS = 4
_WINDOWS_OF_NUMBERS = 16
_MIN_EQUAL_NUMBERS = 12  # rows
_MAX_TOLD = 3
_UNKNOWN = MAX_OFFSET + 1  # an offset that stands for out of step
_TRAITS = np.dtype(
    [
        ("line", np.int64),
        ("src_length", np.float32),
        ("src_numbers", np.int64),
        ("tgt_length", np.float32),
        ("tgt_numbers", np.int64),
    ]
)
"""What is kept of a pair."""


class Shift(NamedTuple):
    """A stretch of a corpus that is out of step."""

    first_line: int
    last_line: int
    offset: int | None
    """Line n of `src` fits line n + offset of `tgt`; none = no offset was found to fit."""


class Drift:
    """Looks at batches as they are read; keeps a few numbers for each 256 pairs."""

    def __init__(self) -> None:
        self._rest = np.empty(0, dtype=_TRAITS)  # of the last pairs, at least a window of them
        self._num_seen_of_rest = 0
        self._lines: list[Ints] = []  # of each window, its first and last line
        self._correlations: list[Floats] = []  # of lengths, by offset; nan = nothing to correlate
        self._equal: list[Ints] = []  # rows with the same numbers, by offset

    def update(self, src: pa.Array, tgt: pa.Array, line: Ints) -> None:
        """Take the next pairs; the columns are strings without nulls."""
        traits = np.concatenate((self._rest, _traits(src, tgt, line)))
        start = self._num_seen_of_rest
        whole = (len(traits) - start) // _WINDOW * _WINDOW
        if whole:
            self._look(traits[start : start + whole])
        keep_from = max(0, min(start + whole, len(traits) - _WINDOW))
        self._rest = traits[keep_from:]
        self._num_seen_of_rest = start + whole - keep_from

    def shifts(self) -> list[Shift]:
        """Stretches that are clearly out of step, in order. Call it once, at the end."""
        if not self._lines:
            return []
        if self._num_seen_of_rest < len(self._rest):
            self._look(self._rest[-_WINDOW:])  # reaches back over pairs already seen
        correlations, equal = np.concatenate(self._correlations), np.concatenate(self._equal)
        offsets = _offsets_by_length(correlations)
        by_numbers = _offsets_by_numbers(equal)
        has_lengths = ~np.isnan(correlations[:, 0])
        offsets = np.where(has_lengths, offsets, by_numbers)
        lines = np.concatenate(self._lines)
        return [
            Shift(int(lines[run.start, 0]), int(lines[run.end - 1, 1]), _known(run.offset))
            for run in _runs(offsets)
            if not _numbers_fit(equal[run.start : run.end], run.offset)
        ]

    def _look(self, traits: _Array) -> None:
        windows = traits.reshape(-1, _WINDOW)
        self._lines.append(windows["line"][:, [0, -1]])
        self._correlations.append(_correlations(windows["src_length"], windows["tgt_length"]))
        self._equal.append(_equal_numbers(windows["src_numbers"], windows["tgt_numbers"]))


def told(shifts: list[Shift], src: str, tgt: str) -> list[str]:
    """The first few shifts in words, for a person; `src` and `tgt` are what to call the two sides."""
    said = [_told(shift, src, tgt) for shift in shifts[:_MAX_TOLD]]
    if len(shifts) > _MAX_TOLD:
        said.append(f"{len(shifts) - _MAX_TOLD} more stretches of {tgt} look out of step.")
    return said


def _told(shift: Shift, src: str, tgt: str) -> str:
    where = f"from about line {shift.first_line:,} to {shift.last_line:,}"
    look = "Look whether a line is missing or doubled there."
    if shift.offset is None:
        return f"{tgt} looks out of step with {src} {where}: lengths do not go together. {look}"
    lines = "1 line" if abs(shift.offset) == 1 else f"{abs(shift.offset)} lines"
    way = "late" if shift.offset > 0 else "early"
    return f"{tgt} looks shifted against {src} {where}: it comes {lines} {way}. {look}"


class _Run(NamedTuple):
    start: int
    """The first window."""
    end: int
    """The one after the last."""
    offset: int
    num_windows: int
    """Those of this offset: a few in between may look otherwise."""


def _traits(src: pa.Array, tgt: pa.Array, line: Ints) -> _Array:
    traits = np.empty(len(line), dtype=_TRAITS)
    traits["line"] = line
    traits["src_length"], traits["src_numbers"] = _lengths_and_numbers(src)
    traits["tgt_length"], traits["tgt_numbers"] = _lengths_and_numbers(tgt)
    return traits


def _lengths_and_numbers(texts: pa.Array) -> tuple[Floats, Ints]:
    """log(1 + bytes), and a number that stands for the digits of each text; 0 = it has none."""
    _, offsets_buffer, data = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[texts.offset :][: len(texts) + 1]
    lengths = np.log1p(np.diff(offsets).astype(np.float32))
    if data is None:
        return lengths, np.zeros(len(texts), dtype=np.int64)
    start, end = int(offsets[0]), int(offsets[-1])
    characters = np.frombuffer(data, dtype=np.uint8)[start:end]
    digits = np.flatnonzero(characters - np.uint8(ord("0")) < 10)
    values = np.zeros(len(digits) + 1, dtype=np.int64)
    np.cumsum(characters[digits] - np.uint8(ord("0") - 1), out=values[1:])
    return lengths, np.diff(values[np.searchsorted(digits, offsets - start)])


def _correlations(src: Floats, tgt: Floats) -> Floats:
    """Of windows' lengths (n, 256), by offset (n, 7)."""
    src = src - src.mean(axis=1, keepdims=True)
    tgt = tgt - tgt.mean(axis=1, keepdims=True)
    deviations = [np.sqrt(np.einsum("nw,nw->n", side, side) / _WINDOW) for side in (src, tgt)]
    products = [np.einsum("nw,nw->n", *_moved(src, tgt, offset)) for offset in _OFFSETS]
    scale = np.where(np.minimum(*deviations) < _MIN_DEVIATION, np.nan, np.multiply(*deviations))
    return np.asarray(np.stack(products, axis=1) / (scale[:, None] * _WINDOW), dtype=np.float32)


def _equal_numbers(src: Ints, tgt: Ints) -> Ints:
    """Rows of windows (n, 256) with the same numbers, by offset (n, 7)."""
    counts = []
    for offset in _OFFSETS:
        left, right = _moved(src, tgt, offset)
        counts.append(np.count_nonzero((left == right) & (left > 0), axis=1))
    return np.stack(counts, axis=1)


def _moved(src: _Array, tgt: _Array, offset: int) -> tuple[_Array, _Array]:
    """Row n of `src` beside row n + offset of `tgt`."""
    size = _WINDOW - abs(offset)
    return src[:, max(0, -offset) :][:, :size], tgt[:, max(0, offset) :][:, :size]


def _offsets_by_length(correlations: Floats) -> Ints:
    """Of each window, by how much it looks shifted; 0 where it does not."""
    values = np.nan_to_num(correlations)
    best = 1 + np.argmax(values[:, 1:], axis=1)
    unmoved, moved = values[:, 0], values[np.arange(len(values)), best]
    measured = correlations[~np.isnan(correlations[:, 0]), 0]
    usual = np.quantile(measured, _USUAL) if len(measured) else 0.0
    is_out_of_step = (unmoved < _LOW_CORRELATION) & (usual > _MIN_USUAL_CORRELATION)
    is_shifted = (moved > _LOW_CORRELATION) & (moved - unmoved > _MIN_GAIN)
    otherwise = np.where(is_out_of_step, _UNKNOWN, 0)
    return np.where(is_shifted, np.array(_OFFSETS)[best], otherwise)


def _offsets_by_numbers(equal: Ints) -> Ints:
    """The same by groups of windows, for numbers are rare."""
    starts = np.arange(0, len(equal), _WINDOWS_OF_NUMBERS)
    sums = np.add.reduceat(equal, starts, axis=0)
    best = 1 + np.argmax(sums[:, 1:], axis=1)
    most = sums[np.arange(len(sums)), best]
    is_shifted = (most >= _MIN_EQUAL_NUMBERS) & (most > 2 * sums[:, 0])
    offsets = np.where(is_shifted, np.array(_OFFSETS)[best], 0)
    return np.repeat(offsets, _WINDOWS_OF_NUMBERS)[: len(equal)]


def _runs(offsets: Ints) -> list[_Run]:
    """Stretches of one offset that are long enough to mean something."""
    runs: list[_Run] = []
    for window in np.flatnonzero(offsets).tolist():
        offset = int(offsets[window])
        last = runs[-1] if runs else None
        if last and last.offset == offset and window - last.end <= _MAX_GAP_WINDOWS:
            runs[-1] = _Run(last.start, window + 1, offset, last.num_windows + 1)
        else:
            runs.append(_Run(window, window + 1, offset, 1))
    return [run for run in runs if run.num_windows >= _min_windows(run.offset)]


def _known(offset: int) -> int | None:
    return None if offset == _UNKNOWN else offset


def _min_windows(offset: int) -> int:
    return _MIN_WINDOWS_OUT_OF_STEP if offset == _UNKNOWN else _MIN_WINDOWS_SHIFTED


def _numbers_fit(equal: Ints, offset: int) -> bool:
    """Whether numbers say of a stretch that it is in step after all."""
    sums = equal.sum(axis=0)
    moved = sums[1:].max() if offset == _UNKNOWN else sums[_OFFSETS.index(offset)]
    return bool(sums[0] >= _MIN_EQUAL_NUMBERS and sums[0] > 2 * moved)
