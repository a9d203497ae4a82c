"""Which sides of training pairs dev and test sets hold.

The sets are small beside the training text: every task has the keys of all that they hold.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifact import Artifact
from pipeline.deduping.match_keys import KEY, Keys, hash_texts, match_keys
from pipeline.reading.formats import read_corpus
from pipeline.text import unescape_entities

Kind = Literal["both", "src", "tgt"]
KINDS: tuple[Kind, ...] = ("both", "src", "tgt")
"""The sides of a training pair that a set holds, of one of its pairs or of two."""
Counts = Counter[tuple[str, Kind]]
"""Rows by set and kind."""

_NOTHING: frozenset[str] = frozenset()


class SideKeys(NamedTuple):
    """Keys of the two sides of some pairs."""

    src: Keys
    tgt: Keys


def side_keys(src: pa.StringArray, tgt: pa.StringArray) -> SideKeys:
    """Keys under which sides count as the same."""
    return SideKeys(hash_texts(match_keys(src)), hash_texts(match_keys(tgt)))


def unescaped(texts: pa.StringArray) -> pa.StringArray:
    """Texts as `clean` may have written them, while nobody cleans a dev or test set."""
    may_change = pc.match_substring(texts, "&")
    changed = [unescape_entities(text) for text in texts.filter(may_change).to_pylist()]
    return pc.replace_with_mask(texts, may_change, pa.array(changed, texts.type))


class Overlap:
    """The sides that some sets hold."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._src: dict[bytes, frozenset[str]] = {}
        self._tgt: dict[bytes, frozenset[str]] = {}

    def add(self, name: str, src: Iterable[bytes], tgt: Iterable[bytes]) -> None:
        """Take keys of the sides of a set, as `keys_as_bytes` gives them."""
        if name not in self.names:
            self.names.append(name)
        for held, keys in ((self._src, src), (self._tgt, tgt)):
            for key in keys:
                held[key] = held.get(key, _NOTHING) | {name}

    def holds(self, src: bytes, tgt: bytes) -> bool:
        """Whether a set has either side."""
        return src in self._src or tgt in self._tgt

    def find(self, keys: SideKeys) -> tuple[npt.NDArray[np.bool_], list[Counts]]:
        """Which pairs have a side that a set holds; and for each of these, in which sets."""
        in_src, in_tgt = _looked_up(keys.src, self._src), _looked_up(keys.tgt, self._tgt)
        is_found = np.zeros(len(keys.src), dtype=bool)
        rows = sorted(in_src.keys() | in_tgt.keys())
        is_found[rows] = True
        return is_found, [
            _kinds(in_src.get(row, _NOTHING), in_tgt.get(row, _NOTHING)) for row in rows
        ]


def overlap_of(sets: Mapping[str, Artifact], min_chars: int) -> Overlap:
    """The sides of downloaded dev and test sets, but those with fewer letters and digits."""
    overlap = Overlap()
    for name, artifact in sets.items():
        overlap.add(name, (), ())
        for batch in read_corpus(artifact.folder):
            src, tgt = (_held_keys(batch[side], min_chars) for side in ("src", "tgt"))
            overlap.add(name, src, tgt)
    return overlap


def keys_as_bytes(keys: Keys) -> list[bytes]:
    """Each key by itself."""
    joined, size = keys.tobytes(), KEY.itemsize
    return [joined[at : at + size] for at in range(0, len(joined), size)]


def _held_keys(texts: pa.StringArray, min_chars: int) -> list[bytes]:
    forms = pa.concat_arrays([match_keys(texts), match_keys(unescaped(texts))])
    return keys_as_bytes(
        hash_texts(forms.filter(pc.greater_equal(pc.utf8_length(forms), min_chars)))
    )


def _looked_up(keys: Keys, held: Mapping[bytes, frozenset[str]]) -> dict[int, frozenset[str]]:
    """Sets by row. Numpy looks at half of each key; few rows are left to look at by hand."""
    halves = np.frombuffer(b"".join(held), dtype=KEY)["high"]
    rows = np.flatnonzero(np.isin(keys["high"], halves))
    found = zip(rows.tolist(), keys_as_bytes(keys[rows]), strict=True)
    return {row: held[key] for row, key in found if key in held}


def _kinds(in_src: frozenset[str], in_tgt: frozenset[str]) -> Counts:
    kinds: Counts = Counter()
    for name in in_src | in_tgt:
        kinds[name, "both" if name in in_src & in_tgt else "src" if name in in_src else "tgt"] = 1
    return kinds
