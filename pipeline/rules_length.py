"""Cleaning rules of size: empty sides, and words and characters of a side, of both, of one word.

**Words** are what stands between white space. Chinese, Japanese, Thai, Lao, Khmer and Burmese are
written without it: there every character counts as a word.
"""

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.characters import BLANK, UNSPACED, WHITE, WIDE
from pipeline.rules_parameters import RuleParameters

_WORDS = {"src": "src words", "tgt": "tgt words"}
_VISIBLE_PATTERN = f"[^{BLANK}]"
_WORD_PATTERN = f"[{UNSPACED}]|[^{WHITE}{UNSPACED}]+"
_NOT_SINGLE_SPACED_PATTERN = f"[{UNSPACED}{WHITE[:-1]}]|^ | $|  |^$"


def empty(batch: pa.RecordBatch, _: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides both hold something visible."""
    src, tgt = (pc.match_substring_regex(batch[side], _VISIBLE_PATTERN) for side in ("src", "tgt"))
    return pc.and_(src, tgt)


def length(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides both have an allowed number of words and of characters.

    Characters as well, since a side of one endless word is long too.
    """
    src, tgt = (_has_length(batch, side, parameters) for side in ("src", "tgt"))
    return pc.and_(src, tgt)


def ratio(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides are about as long as each other, and short pairs.

    The ratio of short sides says little: "Yes." is "Ja, gern doch."

    Words are compared only between sides that are both written with spaces, or both without. For
    characters, Han, kana and Hangul count twice: a Chinese sentence has a third of the characters
    of its English translation, and would be rejected as often as not.
    """
    src, tgt = batch["src"], batch["tgt"]
    src_words, tgt_words = words_of(batch, "src"), words_of(batch, "tgt")
    is_short = pc.less_equal(pc.max_element_wise(src_words, tgt_words), parameters.max_short_words)
    words_differ_in_kind = pc.xor(_is_unspaced(src, src_words), _is_unspaced(tgt, tgt_words))
    words_fit = pc.or_(
        words_differ_in_kind, _within(src_words, tgt_words, parameters.max_word_ratio)
    )
    chars_fit = _within(_width(src), _width(tgt), parameters.max_char_ratio)
    return pc.or_(is_short, pc.and_(words_fit, chars_fit))


def long_word(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs without an over-long word: they are addresses, codes, or text without its spaces.

    In scripts without spaces a character is a word, so none is too long.
    """
    src, tgt = (_has_no_long_word(batch[side], parameters) for side in ("src", "tgt"))
    return pc.and_(src, tgt)


def with_words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the words of each side, which several rules ask for, as further columns."""
    for side in ("src", "tgt"):
        batch = batch.append_column(_WORDS[side], num_words(batch[side]))
    return batch


def words_of(batch: pa.RecordBatch, side: str) -> pa.Int32Array:
    """The words of a side, counted here unless the batch comes from `with_words`."""
    name = _WORDS[side]
    return batch[name] if name in batch.schema.names else num_words(batch[side])


def num_words(texts: pa.StringArray) -> pa.Int32Array:
    """The words of each text."""
    words = pc.add(pc.count_substring(texts, " "), pa.scalar(1, pa.int32()))
    # Normalised text in most scripts is single-spaced, and done. The rest is counted word by word.
    is_other = pc.match_substring_regex(texts, _NOT_SINGLE_SPACED_PATTERN)
    counted = pc.count_substring_regex(texts.filter(is_other), _WORD_PATTERN)
    return pc.replace_with_mask(words, is_other, counted)


def _has_length(batch: pa.RecordBatch, side: str, parameters: RuleParameters) -> pa.BooleanArray:
    words = words_of(batch, side)
    enough = pc.greater_equal(words, parameters.min_words)
    not_too_many = pc.less_equal(words, parameters.max_words)
    not_too_long = pc.less_equal(pc.utf8_length(batch[side]), parameters.max_chars)
    return pc.and_(pc.and_(enough, not_too_many), not_too_long)


def _has_no_long_word(texts: pa.StringArray, parameters: RuleParameters) -> pa.BooleanArray:
    length = f"{{{parameters.max_word_chars + 1}}}"
    is_suspect = pc.match_substring_regex(texts, f"[^ ]{length}")  # the other costs more to build
    fits = pc.invert(is_suspect)
    suspects = texts.filter(is_suspect)
    if not len(suspects):
        return fits
    is_long = pc.match_substring_regex(suspects, f"[^{WHITE}{UNSPACED}]{length}")
    return pc.replace_with_mask(fits, is_suspect, pc.invert(is_long))


def _is_unspaced(texts: pa.StringArray, words: pa.Int32Array) -> pa.BooleanArray:
    """Whether at least half of a text's words are characters of scripts without spaces."""
    unspaced = pc.count_substring_regex(texts, f"[{UNSPACED}]")
    return pc.and_(pc.greater(unspaced, 0), pc.greater_equal(pc.multiply(unspaced, 2), words))


def _width(texts: pa.StringArray) -> pa.Int32Array:
    return pc.add(pc.utf8_length(texts), pc.count_substring_regex(texts, f"[{WIDE}]"))


def _within(one: pa.Int32Array, other: pa.Int32Array, max_ratio: float) -> pa.BooleanArray:
    longer, shorter = pc.max_element_wise(one, other), pc.min_element_wise(one, other)
    return pc.less_equal(pc.cast(longer, pa.float64()), pc.multiply(shorter, max_ratio))
