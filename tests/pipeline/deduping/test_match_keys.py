"""Keys of columns are those of single texts, whatever stands beside them."""

import hashlib
import random
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.deduping import match_keys as module
from pipeline.deduping.match_keys import KEY, hash_pairs, hash_texts, join_keys, match_keys
from pipeline.text import match_key

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"])))


def column(rows):
    return pa.array(rows, pa.string())


@given(texts)
@example(["", "!?", "Straße", "STRASSE", "ẞ", "a", "İ", "…"])
@example(["\u0301a", "a\u0301", "a-\u0301", "½", "ª", "⑽", "´", "a´b"])
def test_a_columns_keys_are_those_of_its_rows(rows):
    assert match_keys(column(rows)).to_pylist() == [match_key(row) for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_characters_of_the_table_fold_alike_in_any_company(seed):
    draw = random.Random(seed)
    in_table = np.flatnonzero(module._fold_table() != module._SLOW)
    fast = [chr(code) for code in in_table]
    odd = [
        *fast[:400],
        "ß",
        "ẞ",
        "\u0301",
        "\u200d",
        "\u3099",
        "ｶ",
        "\u1161",
        "\u11a8",
        "\U0001f1e9",
    ]
    rows = [
        "".join(draw.choice(draw.choice((fast, odd))) for _ in range(draw.randint(0, 6)))
        for _ in range(20_000)
    ]
    assert match_keys(column(rows)).to_pylist() == [match_key(row) for row in rows]


def test_every_character_has_the_key_that_it_has_alone():
    rows = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    rows += [f"x{row}" for row in rows[:0x3000]]
    assert match_keys(column(rows)).to_pylist() == [match_key(row) for row in rows]


@pytest.mark.parametrize("rows_at_once", [1, 3])
def test_the_cut_of_a_column_changes_no_key(monkeypatch, rows_at_once):
    rows = ["A door.", "", "!?", "Straße", "No\u0308", "7"]
    whole = match_keys(column(rows))
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", rows_at_once)
    assert match_keys(column(rows)) == whole
    assert match_keys(column(["x", *rows]).slice(1)) == whole
    assert match_keys(column([])).to_pylist() == []


@given(texts)
@example([])
@example([""])
def test_the_hash_is_blake2b_of_the_text(rows):
    keys = hash_texts(column(rows))
    assert keys.dtype == KEY
    expected = [hashlib.blake2b(row.encode(), digest_size=16).digest() for row in rows]
    assert [key.tobytes() for key in keys] == expected
    assert hash_texts(column(["before", *rows]).slice(1)).tolist() == keys.tolist()


@given(st.lists(st.tuples(*[st.text("ab\n1", max_size=3)] * 2), unique=True))
def test_pairs_have_one_key_only_if_they_are_equal(pairs):
    src, tgt = (column([pair[side] for pair in pairs]) for side in (0, 1))
    assert len({*hash_pairs(src, tgt).tolist()}) == len(pairs)


def test_joined_keys_tell_which_side_is_which():
    one, two = (hash_texts(column([text])) for text in ("one", "two"))
    joined = [join_keys(*sides).tolist()[0] for sides in ((one, two), (two, one), (one, one))]
    assert len({*joined}) == 3
