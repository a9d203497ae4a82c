"""What cleaning rules are, and the bounds that they keep."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class RuleParameters:
    """What the rules allow; bounds are inclusive, and the defaults are those of a recipe.

    Attributes:
        src_language: Language of the source side, as a recipe writes it; empty = not known.
        tgt_language: Language of the target side, likewise.
        drop: Patterns (RE2) that no side may hold.
        min_words: Words a side.
        max_words: Words a side.
        max_chars: Characters (code points) a side.
        max_word_ratio: Words of the longer side per word of the shorter.
        max_char_ratio: Characters of the longer side per character of the shorter.
        max_short_words: Pairs with no more words on either side may have any ratio.
        max_word_chars: Characters of a word.
        min_letter_words: Share of a side's words that hold a letter; 0 to 1.
        min_letter_chars: Share of letters among a side's visible characters; 0 to 1.
        min_copy_similarity: From here on two sides count as copies of each other; 0 to 1.
        min_number_overlap: Numbers that both sides have, plus 1, per number that one has, plus 1.
        same_tags: Whether HTML tags may stay that both sides have alike.
        min_language_score: Least probability that the model of languages gives each side's language.
        off: Names of rules not applied.
    """

    src_language: str = ""
    tgt_language: str = ""
    drop: tuple[str, ...] = ()
    min_words: int = 1
    max_words: int = 150
    max_chars: int = 1_023
    max_word_ratio: float = 2.0
    max_char_ratio: float = 3.0
    max_short_words: int = 4
    max_word_chars: int = 60
    min_letter_words: float = 0.4
    min_letter_chars: float = 0.5
    min_copy_similarity: float = 0.9
    min_number_overlap: float = 1.0
    same_tags: bool = True
    min_language_score: float = 0.05
    off: frozenset[str] = frozenset()

    @property
    def languages(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Each side's column with its language."""
        return ("src", self.src_language), ("tgt", self.tgt_language)


Rule = Callable[[pa.RecordBatch, RuleParameters], pa.BooleanArray]
"""Says row by row what to keep of a batch (columns `src` and `tgt`, without nulls, and others)."""
