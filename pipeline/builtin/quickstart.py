"""The quickstart corpus: English-German pairs made by a grammar, in splits that mean something.

- train, dev, test: one distribution. The hash of a sentence decides which of them it can be in.
- test_comp: an adjective and its noun, or a verb and its object, never together in training.
- test_num: a number in words that is never in training.
- test_long: two subordinate clauses; training has at most one.

Each English sentence has one German sentence. Where two English sentences share a German one
("I see her", "I see them"), only the first is kept; and the hash is that of the German sentence, so
both would be in one split. So no sentence of either language is in two splits, not even with other
punctuation, and decontamination finds nothing to remove.

Training and evaluation pairs come from streams of their own: dev and test sets depend on the seed
alone, so scores compare across sizes, and a smaller training set begins a larger one.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from pipeline.builtin.phrases import Key
from pipeline.builtin.rng import Rng
from pipeline.builtin.sentence import Sentence
from pipeline.builtin.sentences import draw_long_sentence, draw_sentence
from pipeline.errors import ConfigError

VERSION = 1  # raised when the bytes change
SPLITS: tuple[str, ...] = ("train", "dev", "test", "test_comp", "test_num", "test_long")

_NUM_EVAL = 1000  # pairs in each split but train
_DEV_PERCENT = 8
_TEST_PERCENT = 8
_HELD_PAIR_PERCENT = 8
_HELD_NUMBER_PERCENT = 25
_MIN_HELD_NUMBER = 21  # smaller number words are the parts of the others
_NOT_COMPARED = str.maketrans("", "", " .,:?€$£-")


class Pair(NamedTuple):
    """A sentence in English and in German."""

    src: str
    tgt: str


def pairs(split: str, num_train: int = 50_000, seed: int = 1) -> Sequence[Pair]:
    """The pairs of one split; all but train have 1,000, whatever `num_train` is.

    Raises:
        ConfigError: if there is no such split, or `num_train` is negative.
    """
    if split not in SPLITS:
        raise ConfigError(f"the split must be one of {', '.join(SPLITS)}, but is {split!r}.")
    if num_train < 0:
        raise ConfigError(f"`num_train` must be 0 or more, but is {num_train}.")
    return _train(num_train, seed) if split == "train" else _evaluation(seed)[split]


@lru_cache(maxsize=2)
def _train(num_train: int, seed: int) -> tuple[Pair, ...]:
    rows: list[Pair] = []
    sentences = _distinct(draw_sentence, Rng(seed, "train"))
    while len(rows) < num_train:
        sentence, german_key = next(sentences)
        if _destination(sentence, german_key) == "train":
            rows.append(Pair(sentence.en, sentence.de))
    return tuple(rows)


@lru_cache(maxsize=2)
def _evaluation(seed: int) -> dict[str, tuple[Pair, ...]]:
    """All splits but train."""
    rows: dict[str, list[Pair]] = {split: [] for split in ("dev", "test", "test_comp", "test_num")}
    sentences = _distinct(draw_sentence, Rng(seed, "evaluation"))
    while any(len(split) < _NUM_EVAL for split in rows.values()):
        sentence, german_key = next(sentences)
        split = rows.get(_destination(sentence, german_key), [])
        if len(split) < _NUM_EVAL:
            split.append(Pair(sentence.en, sentence.de))
    return {**{name: tuple(split) for name, split in rows.items()}, "test_long": _long(seed)}


def _long(seed: int) -> tuple[Pair, ...]:
    """Long sentences with nothing else that is new."""
    rows: list[Pair] = []
    sentences = _distinct(draw_long_sentence, Rng(seed, "long"))
    while len(rows) < _NUM_EVAL:
        sentence, _ = next(sentences)
        if not any(_is_held(key) for key in sentence.keys):
            rows.append(Pair(sentence.en, sentence.de))
    return tuple(rows)


def _distinct(draw: Callable[[Rng], Sentence], rng: Rng) -> Iterator[tuple[Sentence, str]]:
    """Sentences and their German keys, each language's sentence once."""
    german_of: dict[str, str] = {}
    seen_german: set[str] = set()
    while True:
        sentence = draw(rng)
        english_key, german_key = _compared(sentence.en), _compared(sentence.de)
        known = german_of.setdefault(english_key, german_key)
        assert known == german_key, f"two translations of {sentence.en!r}: {sentence.de!r}, {known}"
        if german_key not in seen_german:
            seen_german.add(german_key)
            yield sentence, german_key


def _destination(sentence: Sentence, german_key: str) -> str:
    """The split that a sentence belongs to; "" if it holds back a pair and a number at once."""
    held = {"num" if key[0] == "number" else "comp" for key in sentence.keys if _is_held(key)}
    if held:
        return f"test_{held.pop()}" if len(held) == 1 else ""
    percent = _percent(german_key)
    if percent < _DEV_PERCENT:
        return "dev"
    return "test" if percent < _DEV_PERCENT + _TEST_PERCENT else "train"


@cache
def _is_held(key: Key) -> bool:
    """Whether training never sees this pair or number."""
    if key[0] == "number":
        return int(key[1]) >= _MIN_HELD_NUMBER and _percent("/".join(key)) < _HELD_NUMBER_PERCENT
    return _percent("/".join(key)) < _HELD_PAIR_PERCENT


def _percent(text: str) -> int:
    """A number below 100 that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 100


def _compared(text: str) -> str:
    """Letters and digits alone: what differs in case or marks only is not two sentences."""
    return text.casefold().translate(_NOT_COMPARED)
