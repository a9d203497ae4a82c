"""How well a vocabulary covers a text: characters without a piece, unknown pieces, pieces a word."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from model.config import UNK
from pipeline.artifact import Json
from pipeline.errors import printable
from pipeline.pieces.subwords import SPACE, Subwords, split

NUM_CODES = 0x110000
MAX_LISTED = 20


class Coverage:
    """Counts over the text of one side, in memory that does not grow with it."""

    def __init__(self, subwords: Subwords):
        self._subwords = subwords
        self.uses = np.zeros(subwords.size, np.int64)
        """How often each piece is used."""
        self._characters = np.zeros(NUM_CODES, np.int64)
        self._words = 0

    def add(self, texts: pa.Array) -> None:
        """Count a column of texts."""
        words = split(texts)
        counts = np.bincount(words.indices, minlength=len(words.different))
        ids = self._subwords.pieces_of(words.different)
        weights = np.repeat(counts, ids.value_lengths().to_numpy())
        self.uses += _weighed(ids.values.to_numpy(), weights, self._subwords.size)
        lengths = np.fromiter(map(len, words.different), np.int64, len(words.different))
        codes = np.frombuffer("".join(words.different).encode("utf-32-le"), "<u4")
        self._characters += _weighed(codes, np.repeat(counts, lengths), NUM_CODES)
        self._words += sum(
            int(count)
            for word, count in zip(words.different, counts, strict=True)
            if word.strip(" ")
        )

    def report(self) -> Json:
        """The figures; shares are of occurrences, between 0 and 1."""
        self._characters[SPACE] = 0
        met = np.flatnonzero(self._characters)
        is_covered = np.array([self._has(chr(code)) for code in met.tolist()], bool)
        times, pieces = self._characters[met], int(self.uses.sum())
        is_byte = np.array(list(map(self._subwords.processor.is_byte, range(self._subwords.size))))
        return {
            "characters": len(met),
            "characters_covered": int(is_covered.sum()),
            "text_covered": _share(int(times[is_covered].sum()), int(times.sum()), of_nothing=1.0),
            "uncovered": _listed(met[~is_covered], times[~is_covered]),
            "words": self._words,
            "pieces": pieces,
            "pieces_per_word": _share(pieces, self._words),
            "unknown_share": _share(int(self.uses[UNK]), pieces),
            "byte_share": _share(int(self.uses[is_byte].sum()), pieces),
        }

    def _has(self, character: str) -> bool:
        return int(self._subwords.processor.piece_to_id(character)) != UNK


def unused_pieces(subwords: Subwords, sides: Sequence[Coverage]) -> int:
    """How many pieces no side uses; marks and bytes, which are no words' pieces, left out."""
    processor = subwords.processor
    uses = sum(side.uses for side in sides)
    return sum(
        not (processor.is_control(piece) or processor.is_unknown(piece) or processor.is_byte(piece))
        for piece in np.flatnonzero(uses == 0).tolist()
    )


def _weighed(values: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(values, weights, minlength=size).astype(np.int64)


def _listed(codes: np.ndarray, times: np.ndarray) -> list[Json]:
    """The most frequent characters, the lower code first among equals."""
    order = np.lexsort((codes, -times))[:MAX_LISTED]
    return [
        {"character": printable(chr(code)), "code": f"U+{code:04X}", "count": count}
        for code, count in zip(codes[order].tolist(), times[order].tolist(), strict=True)
    ]


def _share(part: int, whole: int, of_nothing: float = 0.0) -> float:
    return round(part / whole, 6) if whole else of_nothing
