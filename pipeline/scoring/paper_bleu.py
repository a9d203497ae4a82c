"""The tokenisation of the BLEU that Vaswani et al. (2017) report for newstest2014.

Moses' tokenizer on both sides, and for German each hyphen between characters of its own:
`rich-text` becomes `rich ##AT##-##AT## text`. That raises BLEU: such scores do not compare with
sacreBLEU's.
"""

import importlib.metadata
import re
from functools import cached_property

from sacremoses import MosesTokenizer

_HYPHEN = re.compile(r"(\S)-(\S)")


class Tokenised:
    """A function from a text to its words, with spaces between."""

    def __init__(self, language: str) -> None:
        self.language = language.replace("_", "-").partition("-")[0]
        self.splits_compounds = self.language == "de"
        """As published for German alone."""

    def __call__(self, text: str) -> str:
        """Tokenise one text."""
        words = str(self._moses.tokenize(text, return_str=True))
        return split_compounds(words) if self.splits_compounds else words

    @property
    def signature(self) -> str:
        """What sets it apart, as a signature's `tok`."""
        version = importlib.metadata.version("sacremoses")
        split = "+ATAT" if self.splits_compounds else ""
        return f"moses-{self.language}{split}-sacremoses-{version}"

    @cached_property
    def _moses(self) -> MosesTokenizer:
        return MosesTokenizer(self.language)


def split_compounds(words: str) -> str:
    """Each hyphen between two characters as a word; of `a-b-c` the first alone, as published."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", words)
