"""Sizes by bytes, held against the same counts by regular expressions and by Python."""

import re

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.cleaning.characters import BLANK, UNSPACED, WHITE, WIDE, longest_words
from pipeline.cleaning.sizes import measure, num_words

# The neighbours of characters that matter, in their bytes too: U+0085 is C2 85, U+00AB is C2 AB …
CHARACTERS = (
    " ab.\t\n\r\x00\x1b\x1c\x7f\x85\xa0\xa1\xab\xad\xc2ü\u0303\u05d0\u0e01\u1680\u1780\u2000\u200a"
    "\u200b\u200f\u2010\u2013\u201c\u2028\u2029\u202e\u202f\u2030\u205f\u2060\u20ac\u2190\u3000"
    "\u3042\uac00\ufeff\uff21字😀\U00020000"
)
texts = st.one_of(st.text(CHARACTERS, max_size=20), st.text("ab ü“", max_size=40), st.text())


def expected(text):
    words = len(re.findall(f"[{UNSPACED}]|[^{WHITE}{UNSPACED}]+", text))
    unspaced = len(re.findall(f"[{UNSPACED}]", text))
    return {
        "words": words,
        "chars": len(text),
        "widths": len(text) + len(re.findall(f"[{WIDE}]", text)),
        "is_unspaced": unspaced > 0 and 2 * unspaced >= words,
        "is_visible": bool(re.search(f"[^{BLANK}]", text)),
    }


@example(["  a", ""], 0)
@given(st.lists(texts, max_size=12), st.integers(0, 12))
def test_sizes_are_what_the_characters_say(column, first):
    sizes = measure(pa.array(column, pa.string()).slice(first))._asdict()
    bounds = sizes.pop("longest_bytes").to_pylist()
    found = {name: values.to_pylist() for name, values in sizes.items()}
    wanted = [expected(text) for text in column[first:]]
    assert found == {name: [row[name] for row in wanted] for name in found}
    for text, bound in zip(column[first:], bounds, strict=True):
        assert bound >= max((len(word) for word in text.split(" ")), default=0)


@example(["a " * 9, "", "bbb"], 1)
@given(st.lists(texts, max_size=12), st.integers(0, 12))
def test_the_longest_word_is_the_longest_of_all(column, first):
    words = [re.findall(f"[^{WHITE}{UNSPACED}]+", text) for text in column[first:]]
    found = longest_words(pa.array(column, pa.string()).slice(first)).tolist()
    assert found == [max(map(len, each), default=0) for each in words]


@pytest.mark.parametrize("character", sorted({*CHARACTERS, *map(chr, range(0x80, 0x100))}))
def test_each_character_counts_as_what_it_is(character):
    column = [character, f"a{character}b", f"a {character} b", f"{character}a", f"a{character}"]
    found = measure(pa.array(column))
    for row, text in enumerate(column):
        assert {name: getattr(found, name)[row].as_py() for name in expected(text)} == expected(
            text
        )


def test_no_texts_have_no_sizes():
    assert num_words(pa.array([], pa.string())).to_pylist() == []
    assert num_words(pa.array(["", ""])).to_pylist() == [0, 0]


def test_the_bound_is_exact_in_plain_text():
    bounds = measure(pa.array(["a " * 50 + "x" * 61, "x", "ab " * 30 + "z"])).longest_bytes
    assert bounds.to_pylist() == [61, 1, 2]
