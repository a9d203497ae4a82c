"""Cleaning rules for pairs: which rows to keep, and which rule rejected each of the others.

A rule is a pure function of a batch (columns `src` and `tgt`, strings without nulls, and any others)
and its parameters, and says row by row what to keep. A row is rejected by the first rule of `RULES`
that does so.

**Words** are what stands between white space. Chinese, Japanese, Thai, Lao, Khmer and Burmese are
written without it: there every character counts as a word.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError
from pipeline.text import letters

_MAX_SHORT_WORDS = 4  # the ratio of short sides says little: "Yes." is "Ja, gern doch."
_MIN_COPY_WORDS = 4  # shorter ones, as names and terms, are rightly the same
_MAX_COMPARED_LETTERS = 1_023  # the beginning tells a copy; the work grows with the square
_ROWS_PER_TALLY = 8_192  # keeps the letter counts within the processor's cache
_TALLY_SLACK = 4  # letter counts are taken before case folding, which makes two s of ß

# Inside of character classes, with the code points spelt out: a count must not depend on the
# Unicode version of Arrow's regular expressions.
_WHITE = "\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000 "
_BLANK = _WHITE + "\xad\u200b-\u200f\u2060\ufeff"
_HAN_KANA = (
    "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_THAI_LAO_BURMESE_KHMER = "\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff"
_UNSPACED = f"{_HAN_KANA}\uff66-\uff9f{_THAI_LAO_BURMESE_KHMER}"
# A character of these says about as much as two letters do, and is as wide as two.
_WIDE = f"{_HAN_KANA}\uac00-\ud7a3\uff01-\uff60"

_WORD_PATTERN = f"[{_UNSPACED}]|[^{_WHITE}{_UNSPACED}]+"
_NOT_SINGLE_SPACED_PATTERN = f"[{_UNSPACED}{_WHITE[:-1]}]|^ | $|  |^$"


@dataclass(frozen=True)
class RuleParameters:
    """What the rules allow; bounds are inclusive.

    Attributes:
        min_words: Words a side.
        max_words: Words a side.
        max_chars: Characters (code points) a side.
        max_word_ratio: Words of the longer side per word of the shorter.
        max_char_ratio: Characters of the longer side per character of the shorter.
        min_copy_similarity: From here on two sides count as copies of each other; 0 to 1.
        off: Rules not applied.
    """

    min_words: int = 1
    max_words: int = 150
    max_chars: int = 1_023
    max_word_ratio: float = 2.0
    max_char_ratio: float = 3.0
    min_copy_similarity: float = 0.9
    off: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        unknown = ", ".join(sorted(self.off - RULES.keys()))
        if unknown:
            raise ConfigError(f"Rules that are off must be of {', '.join(RULES)}; not {unknown}.")


class Applied(NamedTuple):
    """A batch after the rules: each row once, in the order it came."""

    kept: pa.RecordBatch
    rejected: pa.RecordBatch
    """With one more column, `rule` (string): the first that rejected the row."""


def apply(batch: pa.RecordBatch, parameters: RuleParameters) -> Applied:
    """Parts a batch into what every rule keeps and what one rejects."""
    rule_of_row = np.full(batch.num_rows, None, dtype=object)
    rows, kept = np.arange(batch.num_rows), batch
    for name, rule in RULES.items():
        if name in parameters.off:
            continue
        keep = rule(kept, parameters)  # only rows that are still there: later rules cost more
        is_kept = keep.to_numpy(zero_copy_only=False)
        if not is_kept.all():
            rule_of_row[rows[~is_kept]] = name
            rows, kept = rows[is_kept], kept.filter(keep)
    names = pa.array(rule_of_row, type=pa.string())
    rejected = batch.append_column("rule", names).filter(names.is_valid())
    return Applied(kept, rejected)


def empty(batch: pa.RecordBatch, _: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides both hold something visible."""
    visible = f"[^{_BLANK}]"
    src, tgt = (pc.match_substring_regex(batch[side], visible) for side in ("src", "tgt"))
    return pc.and_(src, tgt)


def length(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides both have an allowed number of words and of characters.

    Characters as well, since a side of one endless word is long too.
    """
    src, tgt = (_has_length(batch[side], parameters) for side in ("src", "tgt"))
    return pc.and_(src, tgt)


def ratio(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides are about as long as each other, and pairs of at most 4 words a side.

    Words are compared only between sides that are both written with spaces, or both without. For
    characters, Han, kana and Hangul count twice: a Chinese sentence has a third of the characters
    of its English translation, and would be rejected as often as not.
    """
    src, tgt = batch["src"], batch["tgt"]
    src_words, tgt_words = num_words(src), num_words(tgt)
    is_short = pc.less_equal(pc.max_element_wise(src_words, tgt_words), _MAX_SHORT_WORDS)
    words_differ_in_kind = pc.xor(_is_unspaced(src, src_words), _is_unspaced(tgt, tgt_words))
    words_fit = pc.or_(
        words_differ_in_kind, _within(src_words, tgt_words, parameters.max_word_ratio)
    )
    chars_fit = _within(_width(src), _width(tgt), parameters.max_char_ratio)
    return pc.or_(is_short, pc.and_(words_fit, chars_fit))


def copied(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs that are no copies, and pairs with a side of fewer than 4 words.

    Compared are the case-folded letters: no digits, spaces or punctuation, so text without a letter
    is never a copy. Similarity is 1 - (edits / letters of the longer side), edits being the
    Levenshtein distance, of the first 1,023 letters. It is worked out only where counts of ASCII letters leave it possible.
    """
    words = pc.min_element_wise(num_words(batch["src"]), num_words(batch["tgt"]))
    is_suspect = pc.and_(pc.greater_equal(words, _MIN_COPY_WORDS), _is_alike(batch, parameters))
    suspects = batch.filter(is_suspect)
    sides = zip(suspects["src"].to_pylist(), suspects["tgt"].to_pylist(), strict=True)
    keep = [not _is_copy(src, tgt, parameters.min_copy_similarity) for src, tgt in sides]
    return pc.replace_with_mask(pc.invert(is_suspect), is_suspect, pa.array(keep, pa.bool_()))


Rule = Callable[[pa.RecordBatch, RuleParameters], pa.BooleanArray]

RULES: dict[str, Rule] = {"empty": empty, "length": length, "ratio": ratio, "copied": copied}
"""The order in which rules are applied: a row is counted under the first that rejects it."""


def num_words(texts: pa.StringArray) -> pa.Int32Array:
    """The words of each text."""
    words = pc.add(pc.count_substring(texts, " "), pa.scalar(1, pa.int32()))
    # Normalised text in most scripts is single-spaced, and done. The rest is counted word by word.
    is_other = pc.match_substring_regex(texts, _NOT_SINGLE_SPACED_PATTERN)
    counted = pc.count_substring_regex(texts.filter(is_other), _WORD_PATTERN)
    return pc.replace_with_mask(words, is_other, counted)


def _has_length(texts: pa.StringArray, parameters: RuleParameters) -> pa.BooleanArray:
    words = num_words(texts)
    enough = pc.greater_equal(words, parameters.min_words)
    not_too_many = pc.less_equal(words, parameters.max_words)
    not_too_long = pc.less_equal(pc.utf8_length(texts), parameters.max_chars)
    return pc.and_(pc.and_(enough, not_too_many), not_too_long)


def _is_unspaced(texts: pa.StringArray, words: pa.Int32Array) -> pa.BooleanArray:
    """Whether at least half of a text's words are characters of scripts without spaces."""
    unspaced = pc.count_substring_regex(texts, f"[{_UNSPACED}]")
    return pc.and_(pc.greater(unspaced, 0), pc.greater_equal(pc.multiply(unspaced, 2), words))


def _width(texts: pa.StringArray) -> pa.Int32Array:
    return pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, f"[{_WIDE}]"))


def _within(one: pa.Int32Array, other: pa.Int32Array, max_ratio: float) -> pa.BooleanArray:
    longer, shorter = pc.max_element_wise(one, other), pc.min_element_wise(one, other)
    return pc.less_equal(pc.cast(longer, pa.float64()), pc.multiply(shorter, max_ratio))


def _is_alike(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """False where the sides differ in so many ASCII letters that they cannot be similar.

    One edit changes the count of two letters at most, by one each.
    """
    alike = [_tallies_close(part, parameters.min_copy_similarity) for part in _parts(batch)]
    return pa.array(np.concatenate(alike) if alike else np.zeros(0, dtype=np.bool_))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, _ROWS_PER_TALLY):
        yield batch.slice(start, _ROWS_PER_TALLY)


def _tallies_close(batch: pa.RecordBatch, min_similarity: float) -> npt.NDArray[np.bool_]:
    src, tgt = batch["src"], batch["tgt"]
    difference = np.abs(_letter_tallies(src) - _letter_tallies(tgt)).sum(axis=1)
    longer = pc.max_element_wise(pc.utf8_length(src), pc.utf8_length(tgt)).to_numpy()
    close: npt.NDArray[np.bool_] = difference <= 2 * (1 - min_similarity) * longer + _TALLY_SLACK
    return close


def _letter_tallies(texts: pa.StringArray) -> npt.NDArray[np.int64]:
    """How often each text has each ASCII letter, in either case: [rows, 32]."""
    _, ends, data = texts.buffers()
    ends = np.frombuffer(ends, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    codes = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]] | 0x20
    row_of_byte = np.repeat(np.arange(len(texts)), np.diff(ends))
    is_letter = (codes >= ord("a")) & (codes <= ord("z"))
    cells = row_of_byte[is_letter] * 32 + (codes[is_letter] - ord("a"))
    return np.bincount(cells, minlength=32 * len(texts)).reshape(-1, 32)


def _is_copy(src: str, tgt: str, min_similarity: float) -> bool:
    one, other = letters(src)[:_MAX_COMPARED_LETTERS], letters(tgt)[:_MAX_COMPARED_LETTERS]
    longer = max(len(one), len(other))
    if longer == 0:
        return False
    # The epsilon mends 1 - 0.9 < 0.1: ten letters may differ in one.
    return _edits_are_within(one, other, math.floor((1 - min_similarity) * longer + 1e-9))


def _edits_are_within(one: str, other: str, limit: int) -> bool:
    """Whether at most `limit` inserted, deleted or replaced letters turn one text into the other.

    Walks Levenshtein's table row by row within `limit` of the diagonal (Ukkonen 1985), and stops at
    the first row that is over the limit: for texts that are unlike, after a few letters.
    """
    if one == other:
        return True
    if abs(len(one) - len(other)) > limit:
        return False
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        first, last = max(1, row - limit), min(len(other), row + limit)
        edits = [limit + 1] * (len(other) + 1)
        edits[0] = row
        for column in range(first, last + 1):
            replaced = above[column - 1] + (letter != other[column - 1])
            edits[column] = min(replaced, above[column] + 1, edits[column - 1] + 1)
        if min(edits[first - 1 : last + 1]) > limit:
            return False
        above = edits
    return above[-1] <= limit
