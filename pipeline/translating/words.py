"""Pieces of text and the words that they make: where long texts are cut, and what is aligned.

A piece that begins with `▁` begins a word, as SentencePiece writes a space.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

SPACE = "▁"
UNKNOWN = "<unk>"
"""A piece outside the vocabulary. In a translation it is a word of its own."""
UNKNOWN_WORD = "⁇"
ENDS_BEFORE_SPACE = (".", "!", "?", "…", ":", ";", '."', '!"', '?"', ".”", ".“", ".»", ".)")
ENDS_ANYWHERE = ("。", "！", "？", "।", "॥", "۔", "؟")

Units = Literal["words", "pieces"]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which units of a translation look at which of its source."""

    src: tuple[str, ...]
    tgt: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    """Indices into `src` and `tgt`, from 0, sorted."""


def cut_points(pieces: Sequence[str], most: int) -> list[int]:
    """Where parts of at most `most` pieces end.

    Each ends with the last sentence that leaves it more than half full, else with the last word,
    else where it is full.
    """
    ends, start = [], 0
    while len(pieces) - start > most:
        full = start + most
        half = start + most // 2
        sentence = next((at for at in range(full, half, -1) if _ends_sentence(pieces, at)), 0)
        word = next((at for at in range(full, start, -1) if pieces[at].startswith(SPACE)), full)
        start = sentence or word
        ends.append(start)
    return [*ends, len(pieces)]


def align_units(
    units: Units,
    src: Sequence[Sequence[str]],
    tgt: Sequence[Sequence[str]],
    places: Sequence[Sequence[int]],
) -> Alignment:
    """The alignment of a text, from those of its parts.

    Args:
        units: What is aligned.
        src: The pieces of each part.
        tgt: The pieces of each part's translation.
        places: For each piece of each translation, the piece of the part that it looks at most.
            One past the end is the end of the part: such a piece looks at nothing.
    """
    src_units: list[str] = []
    tgt_units: list[str] = []
    pairs: set[tuple[int, int]] = set()
    for src_pieces, tgt_pieces, at in zip(src, tgt, places, strict=True):
        src_words, src_of = _group(units, src_pieces, are_words_apart=False)
        tgt_words, tgt_of = _group(units, tgt_pieces, are_words_apart=True)
        pairs |= {
            (len(src_units) + src_of[place], len(tgt_units) + tgt_of[piece])
            for piece, place in enumerate(at)
            if place < len(src_pieces)
        }
        src_units += src_words
        tgt_units += tgt_words
    return Alignment(tuple(src_units), tuple(tgt_units), tuple(sorted(pairs)))


def _group(
    units: Units, pieces: Sequence[str], *, are_words_apart: bool
) -> tuple[list[str], list[int]]:
    """Units, and for each piece the number of the unit it belongs to.

    `are_words_apart`: unknown pieces stand between spaces.
    """
    if units == "pieces":
        return list(pieces), list(range(len(pieces)))
    words: list[str] = []
    unit_of = []
    is_new = True
    for piece in pieces:
        is_unknown = are_words_apart and piece == UNKNOWN
        text = UNKNOWN_WORD if is_unknown else piece.removeprefix(SPACE)
        if not words or is_new or is_unknown or piece.startswith(SPACE):
            words.append("")
        words[-1] += text
        unit_of.append(len(words) - 1)
        is_new = is_unknown
    return words, unit_of


def _ends_sentence(pieces: Sequence[str], at: int) -> bool:
    """Whether a sentence ends before the piece at this place."""
    before = pieces[at - 1]
    return before.endswith(ENDS_ANYWHERE) or (
        before.endswith(ENDS_BEFORE_SPACE) and pieces[at].startswith(SPACE)
    )
