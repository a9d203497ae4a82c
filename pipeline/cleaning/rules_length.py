"""Cleaning rules of size: empty sides, and words and characters of a side, of both, of one word.

**Words** are what stands between white space. Chinese, Japanese, Thai, Lao, Khmer and Burmese are
written without it: there every character counts as a word.
"""

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cleaning.characters import longest_words
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.cleaning.sizes import Sizes, measure


def empty(batch: pa.RecordBatch, _: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides both hold something visible."""
    return pc.and_(*(sizes_of(batch, side).is_visible for side in ("src", "tgt")))


def length(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides both have an allowed number of words and of characters.

    Characters as well, since a side of one endless word is long too.
    """
    return pc.and_(*(_has_length(sizes_of(batch, side), parameters) for side in ("src", "tgt")))


def ratio(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides are about as long as each other, and short pairs.

    The ratio of short sides says little: "Yes." is "Ja, gern doch."

    Words are compared only between sides that are both written with spaces, or both without. For
    characters, Han, kana and Hangul count twice: a Chinese sentence has a third of the characters
    of its English translation, and would be rejected as often as not.
    """
    src, tgt = sizes_of(batch, "src"), sizes_of(batch, "tgt")
    is_short = pc.less_equal(pc.max_element_wise(src.words, tgt.words), parameters.max_short_words)
    words_differ_in_kind = pc.xor(src.is_unspaced, tgt.is_unspaced)
    words_fit = pc.or_(
        words_differ_in_kind, _within(src.words, tgt.words, parameters.max_word_ratio)
    )
    chars_fit = _within(src.widths, tgt.widths, parameters.max_char_ratio)
    return pc.or_(is_short, pc.and_(words_fit, chars_fit))


def long_word(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs without an over-long word: they are addresses, codes, or text without its spaces.

    In scripts without spaces a character is a word, so none is too long.
    """
    return pc.and_(*(_has_no_long_word(batch, side, parameters) for side in ("src", "tgt")))


def with_sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the sizes of each side, which several rules ask for, as further columns."""
    for side in ("src", "tgt"):
        for name, column in measure(batch[side])._asdict().items():
            batch = batch.append_column(f"{side} {name}", column)
    return batch


def sizes_of(batch: pa.RecordBatch, side: str) -> Sizes:
    """The sizes of a side, measured here unless the batch comes from `with_sizes`."""
    columns = [f"{side} {name}" for name in Sizes._fields]
    if columns[0] not in batch.schema.names:
        return measure(batch[side])
    return Sizes(*(batch[name] for name in columns))


def _has_length(sizes: Sizes, parameters: RuleParameters) -> pa.BooleanArray:
    enough = pc.greater_equal(sizes.words, parameters.min_words)
    not_too_many = pc.less_equal(sizes.words, parameters.max_words)
    not_too_long = pc.less_equal(sizes.chars, parameters.max_chars)
    return pc.and_(pc.and_(enough, not_too_many), not_too_long)


def _has_no_long_word(
    batch: pa.RecordBatch, side: str, parameters: RuleParameters
) -> pa.BooleanArray:
    is_suspect = pc.greater(sizes_of(batch, side).longest_bytes, parameters.max_word_chars)
    fits = pc.invert(is_suspect)
    suspects = batch[side].filter(is_suspect)
    if not len(suspects):
        return fits
    none_is_long = longest_words(suspects) <= parameters.max_word_chars
    return pc.replace_with_mask(fits, is_suspect, pa.array(none_is_long))


def _within(one: pa.Int32Array, other: pa.Int32Array, max_ratio: float) -> pa.BooleanArray:
    longer, shorter = pc.max_element_wise(one, other), pc.min_element_wise(one, other)
    return pc.less_equal(pc.cast(longer, pa.float64()), pc.multiply(shorter, max_ratio))
