"""`match_key` of whole columns, and 128-bit keys of texts.

Most characters of most languages fold to one character or to none, whatever stands beside them:
text of these alone goes through one table, the rest through `match_key`, with the same result.
"""

import hashlib
import itertools
import re
import sys
import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.text import SETTLED, match_key

KEY = np.dtype([("high", "<u8"), ("low", "<u8")])
"""128 bits. Of 10^9 texts, two have the same key with a chance of 10^-21."""
Keys = npt.NDArray[np.void]
"""An array of `KEY`."""

_ROWS_AT_ONCE = 4_096  # what is worked on stays in the processor's cache
_DROPPED, _SLOW = 0, 0xFFFFFFFF
_SRC_FACTOR, _TGT_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def hash_texts(texts: pa.StringArray) -> Keys:
    """A key of each text (no nulls), the same on every machine: BLAKE2b."""
    _, offsets, data = texts.buffers()
    if len(texts) == 0 or data is None:
        return np.frombuffer(hashlib.blake2b(digest_size=16).digest() * len(texts), dtype=KEY)
    ends = np.frombuffer(offsets, dtype="<i4")[
        texts.offset : texts.offset + len(texts) + 1
    ].tolist()
    view, blake2b = memoryview(data), hashlib.blake2b
    digests = [
        blake2b(view[start:end], digest_size=16).digest() for start, end in itertools.pairwise(ends)
    ]
    return np.frombuffer(b"".join(digests), dtype=KEY)


def hash_pairs(src: pa.StringArray, tgt: pa.StringArray) -> Keys:
    """A key of both sides as they are. Text may hold any separator, hence the length."""
    lengths = pc.binary_length(src).cast(pa.string())
    return hash_texts(pc.binary_join_element_wise(lengths, src, tgt, "\n"))


def join_keys(src: Keys, tgt: Keys) -> Keys:
    """A key of two keys; which is which makes a difference."""
    joined = np.empty(len(src), dtype=KEY)
    for half in ("high", "low"):
        joined[half] = (
            src[half] * _SRC_FACTOR + tgt[half] * _TGT_FACTOR
        )  # both odd: nothing is lost
    return joined


def match_keys(texts: pa.StringArray) -> pa.StringArray:
    """The `match_key` of each text (no nulls)."""
    parts = [_folded(texts.slice(at, _ROWS_AT_ONCE)) for at in range(0, len(texts), _ROWS_AT_ONCE)]
    return pa.concat_arrays(parts) if parts else texts


def _folded(texts: pa.StringArray) -> pa.StringArray:
    plain = pc.replace_substring(texts, "ß", "ss")  # German's one letter that folds to two
    folded = _fold_table()[_codes(plain)]
    ends = np.cumsum(pc.utf8_length(plain).to_numpy(), dtype=np.int64)
    is_slow = _sums(folded == _SLOW, ends) > 0
    folded[folded == _SLOW] = _DROPPED
    keys, lengths = _strings(folded, ends)
    # A text without letters and digits is its own key.
    by_hand = is_slow | (lengths == 0)
    if not by_hand.any():
        return keys
    mask = pa.array(by_hand)
    found = pa.array([match_key(text) for text in texts.filter(mask).to_pylist()], pa.string())
    return pc.replace_with_mask(keys, mask, found)


def _strings(
    codes: npt.NDArray[np.uint32], ends: npt.NDArray[np.int64]
) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
    """What is not dropped of each text, and its length in bytes."""
    is_kept = codes != _DROPPED
    widths = is_kept.astype(np.int64)
    for wider in (0x80, 0x800, 0x10000):  # where UTF-8 takes a byte more
        widths += codes >= wider
    lengths = _sums(widths, ends)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = codes[is_kept].tobytes().decode("utf-32-le").encode()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.StringArray.from_buffers(len(ends), buffers[1], buffers[2]), lengths


def _sums(values: npt.NDArray[np.generic], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sums of consecutive pieces, perhaps empty ones."""
    before = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return np.diff(before[ends], prepend=0)


def _codes(texts: pa.StringArray) -> npt.NDArray[np.uint32]:
    """The code points of all texts, one after the other."""
    _, ends, data = texts.buffers()
    ends = np.frombuffer(ends, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    joined = memoryview(data or b"")[ends[0] : ends[-1]]
    return np.frombuffer(str(joined, "utf-8").encode("utf-32-le"), dtype=np.uint32)


@lru_cache(maxsize=1)
def _fold_table() -> npt.NDArray[np.uint32]:
    """For each code point the one that it folds to, or none; or that it must be looked at."""
    settled = re.findall(f"[ {SETTLED}]", "".join(map(chr, range(sys.maxunicode + 1))))
    is_settled = frozenset(settled)
    table = np.full(sys.maxunicode + 1, _SLOW, dtype=np.uint32)
    for character in settled:
        folded = match_key(f"a{character}a")[1:-1]
        if unicodedata.category(character)[0] == "M" and folded:
            continue  # stays only after a letter
        if not folded:
            table[ord(character)] = _DROPPED
        elif folded in is_settled:
            table[ord(character)] = ord(folded)
    return table
