"""A finished sentence pair, and what it joins."""

from typing import NamedTuple

from pipeline.builtin.phrases import Key


class Sentence(NamedTuple):
    """English and German, and the keys by which a test slice may hold it back."""

    en: str
    de: str
    keys: tuple[Key, ...]


def sentence(en: str, de: str, keys: tuple[Key, ...] = (), mark: str = ".") -> Sentence:
    """With a capital and an end mark."""
    return Sentence(f"{en[0].upper()}{en[1:]}{mark}", f"{de[0].upper()}{de[1:]}{mark}", keys)
