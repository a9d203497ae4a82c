"""What kind of characters a text holds, for whole columns at once.

Kinds come from Python's Unicode tables and from ranges spelled out here, so that a count changes
only with `pipeline.text.UNICODE_VERSION`, never with Arrow's regular expressions.
"""

import sys
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Inside of character classes.
WHITE = "\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000 "
BLANK = WHITE + "\xad\u200b-\u200f\u2060\ufeff"
"""White space and what is invisible."""

_HAN_KANA = (
    "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_THAI_LAO_BURMESE_KHMER = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
UNSPACED = f"{_HAN_KANA}\uff66-\uff9f{_THAI_LAO_BURMESE_KHMER}"
"""Scripts written without white space, where every character counts as a word."""
WIDE = f"{_HAN_KANA}\uac00-\ud7a3\uff01-\uff60"
"""A character of these says about as much as two letters do, and is as wide as two."""

_LETTER, _WHITE, _ALONE = 1, 2, 4  # kinds, as bits: a word by itself is what stands alone
_ROWS_AT_ONCE = 4_096  # what is worked on stays in the processor's cache


class Counts(NamedTuple):
    """What each of some texts is made of."""

    words: npt.NDArray[np.int32]
    letter_words: npt.NDArray[np.int32]
    """Words that hold a letter."""
    chars: npt.NDArray[np.int32]
    """Characters but white space."""
    letters: npt.NDArray[np.int32]
    """Letters and the marks on them: in many scripts they are the vowels."""


def count_kinds(texts: pa.StringArray) -> Counts:
    """Counts words and letters of each text (no nulls)."""
    none = np.zeros(0, dtype=np.int32)
    parts = [_counts(part) for part in _parts(texts)] or [Counts(none, none, none, none)]
    return Counts(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def longest_words(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Of each text (no nulls) the characters of its longest word in a script with spaces."""
    none = np.zeros(0, dtype=np.int32)
    return np.concatenate([none, *(_longest(part) for part in _parts(texts))])


def bytes_of(texts: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of all texts, one after the other, and where each begins and the last ends."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int32)
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    joined = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    return joined, ends - ends[0]


def _parts(texts: pa.StringArray) -> Iterator[pa.StringArray]:
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        yield texts.slice(start, _ROWS_AT_ONCE)


def _counts(texts: pa.StringArray) -> Counts:
    kinds, first = _kinds_of(texts)
    is_letter = kinds & _LETTER
    is_visible = (kinds & _WHITE) == 0
    is_start = _word_starts(kinds, is_visible)
    starts = np.flatnonzero(is_start)
    has_letter = np.zeros_like(is_letter)
    if len(starts):
        has_letter[starts] = np.maximum.reduceat(is_letter, starts)
    flags = (is_start, has_letter, is_visible, is_letter)
    return Counts(*(np.add.reduceat(each, first, dtype=np.int32) for each in flags))


def _longest(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    kinds, first = _kinds_of(texts)
    breaks = np.flatnonzero(kinds & (_WHITE | _ALONE))
    runs = (np.diff(breaks, prepend=-1) - 1).astype(np.int32)
    longest: npt.NDArray[np.int32] = np.maximum.reduceat(runs, np.searchsorted(breaks, first))
    return longest


def _kinds_of(texts: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The kinds of all characters, and where each text begins.

    A space comes after each: so each has a character, and no word goes on into the next text.
    """
    kinds = _kinds()[_codes(pc.binary_join_element_wise(texts, " ", ""))]
    lengths = pc.utf8_length(texts).to_numpy() + np.int64(1)
    return kinds, np.cumsum(lengths) - lengths


def _word_starts(
    kinds: npt.NDArray[np.uint8], is_visible: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    is_start = is_visible.copy()
    is_alone = (kinds & _ALONE) != 0
    is_start[1:] &= ~is_visible[:-1] | is_alone[1:] | is_alone[:-1]
    return is_start


def _codes(texts: pa.StringArray) -> npt.NDArray[np.uint32]:
    """The code points of all texts, one after the other."""
    joined, _ = bytes_of(texts)
    return np.frombuffer(joined.tobytes().decode().encode("utf-32-le"), dtype=np.uint32)


@lru_cache(maxsize=1)
def digits() -> str:
    """The decimal digits of all scripts, as the inside of a character class."""
    return "".join(filter(str.isdecimal, map(chr, range(sys.maxunicode + 1))))


@lru_cache(maxsize=1)
def _kinds() -> npt.NDArray[np.uint8]:
    """The kind of every code point."""
    every = list(map(chr, range(sys.maxunicode + 1)))
    is_letter = [unicodedata.category(each)[0] in "LM" for each in every]
    kinds = np.array(is_letter, dtype=np.uint8) * _LETTER
    for pattern, kind in ((WHITE, _WHITE), (UNSPACED, _ALONE)):
        for first, last in _ranges(pattern):
            kinds[first : last + 1] |= kind
    return kinds


def _ranges(character_class: str) -> list[tuple[int, int]]:
    """The inside of a character class as first and last code points."""
    found, rest = [], character_class
    while rest:
        width = 3 if rest[1:2] == "-" else 1
        found.append((ord(rest[0]), ord(rest[width - 1])))
        rest = rest[width:]
    return found
