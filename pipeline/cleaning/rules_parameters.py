"""What cleaning rules are, and the bounds that they keep."""

from collections.abc import Callable

import pyarrow as pa

from pipeline.config import CleanConfig


class RuleParameters(CleanConfig):
    """What the rules allow: a recipe's section, and the languages of the text that it is for."""

    src_language: str = ""
    """Of the source side, as a recipe writes it; empty = not known."""
    tgt_language: str = ""
    """Of the target side, likewise."""

    @property
    def languages(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """Each side's column with its language."""
        return ("src", self.src_language), ("tgt", self.tgt_language)


Rule = Callable[[pa.RecordBatch, RuleParameters], pa.BooleanArray]
"""Says row by row what to keep of a batch (columns `src` and `tgt`, without nulls, and others)."""
