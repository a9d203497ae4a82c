"""The cleaning rule of copies: sentences that nobody translated."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cleaning.characters import bytes_of
from pipeline.cleaning.rules_length import sizes_of
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.text import letters

_MIN_COPY_WORDS = 4  # shorter ones, as names and terms, are rightly the same
_MAX_COMPARED_LETTERS = 1_023  # the beginning tells a copy; the work grows with the square
_ROWS_PER_TALLY = 8_192  # keeps the letter counts within the processor's cache
# Of each byte the column of its letter: A and a are 1, what is no ASCII letter is 0.
_LETTER_CELLS = np.array(
    [ord(each) & 31 if each.isascii() and each.isalpha() else 0 for each in map(chr, range(256))]
)
_TALLY_SLACK = 4  # letter counts are taken before case folding, which makes two s of ß


def copied(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs that are no copies, and pairs with a side of fewer than 4 words.

    Compared are the case-folded letters: no digits, spaces or punctuation, so text without a letter
    is never a copy. Similarity is 1 - (edits / letters of the longer side), edits being the
    Levenshtein distance, of the first 1,023 letters. It is worked out only where counts of ASCII letters leave it possible.
    """
    words = pc.min_element_wise(sizes_of(batch, "src").words, sizes_of(batch, "tgt").words)
    is_suspect = pc.and_(pc.greater_equal(words, _MIN_COPY_WORDS), _is_alike(batch, parameters))
    suspects = batch.filter(is_suspect)
    sides = zip(suspects["src"].to_pylist(), suspects["tgt"].to_pylist(), strict=True)
    keep = [not _is_copy(src, tgt, parameters.min_copy_similarity) for src, tgt in sides]
    return pc.replace_with_mask(pc.invert(is_suspect), is_suspect, pa.array(keep, pa.bool_()))


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
    chars = [sizes_of(batch, side).chars for side in ("src", "tgt")]
    longer = pc.max_element_wise(*chars).to_numpy()
    close: npt.NDArray[np.bool_] = difference <= 2 * (1 - min_similarity) * longer + _TALLY_SLACK
    return close


def _letter_tallies(texts: pa.StringArray) -> npt.NDArray[np.int64]:
    """How often each text has each ASCII letter, in either case: [rows, 31]."""
    codes, ends = bytes_of(texts)
    first_cell_of_byte = np.repeat(np.arange(0, 32 * len(texts), 32), np.diff(ends))
    cells = first_cell_of_byte + _LETTER_CELLS[codes]
    return np.bincount(cells, minlength=32 * len(texts)).reshape(-1, 32)[:, 1:]


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
