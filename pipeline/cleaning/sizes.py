"""How long texts are, for whole columns at once: what the rules of size ask for.

Most text is settled by its bytes: single spaces, and no character whose kind matters. Only the rest
is counted character by character, with the same result.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cleaning.characters import BLANK, UNSPACED, WHITE, WIDE, bytes_of

_VISIBLE_PATTERN = f"[^{BLANK}]"
_WORD_PATTERN = f"[{UNSPACED}]|[^{WHITE}{UNSPACED}]+"
_SPACE = ord(" ")

# Second and third bytes of characters that are white or blank; other text is full of their like.
_C2_MATTERS = np.isin(np.arange(256), (0x85, 0xA0, 0xAD))
_E2_80_MATTERS = np.isin(np.arange(256), (*range(0x80, 0x90), 0xA8, 0xA9, 0xAF))


class Sizes(NamedTuple):
    """Of each text of a column."""

    words: pa.Int32Array
    """What stands between white space; characters of scripts that are written without it."""
    chars: pa.Int32Array
    widths: pa.Int32Array
    """Characters; Han, kana and Hangul count twice."""
    is_unspaced: pa.BooleanArray
    """Whether at least half of the words are characters of scripts without spaces."""
    is_visible: pa.BooleanArray
    """Whether there is anything to see."""
    longest_bytes: pa.Int32Array
    """No word of the text has more bytes, and so no more characters."""


def measure(texts: pa.StringArray) -> Sizes:
    """The sizes of each text (no nulls)."""
    data, ends = bytes_of(texts)
    is_space = data == _SPACE
    # Text that needs no closer look begins and ends with a word, and one space is between two.
    is_start = is_space.copy()
    is_start[ends[:-1][np.diff(ends) > 0]] = True
    starts = np.flatnonzero(is_start)
    starts_before = np.searchsorted(starts, ends).astype(np.int32)
    words = np.diff(starts_before)
    longest = _longest(is_space, starts, starts_before[:-1])
    chars = pc.utf8_length(texts)
    widths, is_unspaced = chars.to_numpy().copy(), np.zeros(len(texts), dtype=np.bool_)
    is_visible = words > 0
    other = np.flatnonzero(_needs_a_closer_look(data, ends, is_space))
    if len(other):
        rest = texts.take(pa.array(other))
        words[other] = pc.count_substring_regex(rest, _WORD_PATTERN).to_numpy()
        unspaced = pc.count_substring_regex(rest, f"[{UNSPACED}]").to_numpy()
        is_unspaced[other] = (unspaced > 0) & (2 * unspaced >= words[other])
        widths[other] += pc.count_substring_regex(rest, f"[{WIDE}]").to_numpy()
        visible = pc.match_substring_regex(rest, _VISIBLE_PATTERN)
        is_visible[other] = visible.to_numpy(zero_copy_only=False)
    return Sizes(
        pa.array(words, pa.int32()),
        chars,
        pa.array(widths, pa.int32()),
        pa.array(is_unspaced),
        pa.array(is_visible),
        pa.array(longest, pa.int32()),
    )


def num_words(texts: pa.StringArray) -> pa.Int32Array:
    """The words of each text."""
    return measure(texts).words


def _longest(
    is_space: npt.NDArray[np.bool_], starts: npt.NDArray[np.intp], first: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Of each text the bytes of the longest run without a space; `first` are the texts' starts."""
    runs = np.diff(starts, append=len(is_space)) - is_space[starts]
    # One more, for empty texts at the end: their first start is beyond all there are.
    runs = np.append(runs, 0).astype(np.int32)
    longest: npt.NDArray[np.int32] = np.maximum.reduceat(runs, first)
    return longest


def _needs_a_closer_look(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32], is_space: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Texts that are empty, not single-spaced, or have a character whose kind matters."""
    is_empty = ends[:-1] == ends[1:]
    is_other: npt.NDArray[np.bool_] = is_empty.copy()
    full = np.flatnonzero(~is_empty)
    is_other[full] |= is_space[ends[full]] | is_space[ends[full + 1] - 1]
    doubled = np.flatnonzero(is_space[1:] & is_space[:-1])
    places = np.concatenate((_that_matter(data), doubled))
    is_other[np.searchsorted(ends, places, side="right") - 1] = True
    return is_other


def _that_matter(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
    """Where characters begin whose kind matters; the bytes are whole UTF-8."""
    places = np.flatnonzero((data < _SPACE) | (data == 0xC2) | (data >= 0xE0))
    first = data[places]
    after = data[np.minimum(places + 1, len(data) - 1)]
    last = data[np.minimum(places + 2, len(data) - 1)]
    is_plain = (first == 0xC2) & ~_C2_MATTERS[after]
    is_plain |= (first == 0xE2) & (after != 0x81) & ((after != 0x80) | ~_E2_80_MATTERS[last])
    that_matter: npt.NDArray[np.intp] = places[~is_plain]
    return that_matter
