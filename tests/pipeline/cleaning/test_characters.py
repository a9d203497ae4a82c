"""Counts of words and letters, against counting by hand."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cleaning.characters import count_kinds, digits
from pipeline.cleaning.sizes import num_words


def counts(*texts):
    return list(zip(*count_kinds(pa.array(texts, pa.string())), strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, 0, 0, 0)),
        (" \u3000", (0, 0, 0, 0)),
        ("ab 12", (2, 1, 4, 2)),
        ("a1", (1, 1, 2, 1)),
        ("我1234", (2, 1, 5, 1)),
        ("我们 1 2", (4, 2, 4, 2)),
        ("हि", (1, 1, 2, 2)),
        ("e\u0301 1", (2, 1, 3, 2)),
        ("\U00010400\U0001f600", (1, 1, 2, 1)),
    ],
)
def test_words_and_letters_are_counted(text, expected):
    assert counts("x", text, "7") == [(1, 1, 1, 1), expected, (1, 0, 1, 0)]


def test_no_texts_have_no_counts():
    assert counts() == []


@given(
    st.lists(st.text(st.sampled_from("aé1. 字-\u0301\u3000\n\U00010400"), max_size=12)), st.data()
)
def test_counts_are_those_of_each_text_by_itself(texts, data):
    array = pa.array(texts, pa.string())
    first = data.draw(st.integers(0, len(texts)))
    found = count_kinds(array.slice(first))
    assert found.words.tolist() == num_words(array.slice(first)).to_pylist()
    for text, chars, letters in zip(texts[first:], found.chars, found.letters, strict=True):
        visible = [character for character in text if not character.isspace()]
        assert chars == len(visible)
        assert letters == sum(unicodedata.category(each)[0] in "LM" for each in visible)


def test_many_texts_are_cut_without_a_seam():
    array = pa.array(["a 1", "1 1", "b b"] * 5_000)
    assert np.array_equal(count_kinds(array).letter_words, [1, 0, 2] * 5_000)


def test_digits_are_decimal_ones_of_all_scripts():
    assert {"0", "9", "٣", "३", "３"} <= set(digits())
    assert not set("²Ⅷ½a") & set(digits())
