"""The rules together: their order, and that each row comes out once."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.cleaning.rules import RULES, apply
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.config import Rule

DEFAULTS = RuleParameters(src_language="en", tgt_language="de")
SENTENCE = "Meine Schwester backt am Sonntag Brot"
REJECTED = {
    "empty": ("", "Niemand geht ans Telefon."),
    "drop": ("Press the DROP key.", "Drücken Sie die Taste."),
    "length": ("very " * 151, "sehr " * 151),
    "ratio": ("and " * 60, "Ja."),
    "long_word": ("This is " + "x" * 61, "Das ist " + "x" * 61),
    "letters": ("— ? !", "— ? !"),
    "copied": (SENTENCE, SENTENCE),
    "numbers": ("It costs 25 euros.", "Es kostet 52 Euro."),
    "urls": ("It is on https://one.example now.", "Es ist jetzt auf https://other.example da."),
    "tags": ("The cat waits by the door.<br>", "Die Katze wartet an der Tür."),
    "mojibake": ("The cat waits by the door.", "Die Katze wartet an der TÃ¼r."),
    "language": ("Personne ne répond au téléphone.", "Niemand geht ans Telefon."),
}
KEPT = [("The cat waits.", "Die Katze wartet."), ("We walk to the lake.", "Wir gehen zum See.")]


def test_rows_go_to_the_first_rule_that_rejects_them(pair_batch):
    both = ("", "<br>" + REJECTED["mojibake"][1])
    table = pair_batch(KEPT[0], *REJECTED.values(), both, KEPT[1])
    bounds = RuleParameters(src_language="en", tgt_language="de", drop=["nothing", "[A-Z]{3,}"])
    kept, rejected = apply(table, bounds)
    assert kept.schema == table.schema
    assert kept["line"].to_pylist() == [1, table.num_rows]
    assert rejected.schema.names == [*table.schema.names, "rule"]
    assert rejected["line"].to_pylist() == list(range(2, table.num_rows))
    assert rejected["rule"].to_pylist() == [*REJECTED, "empty"]
    assert list(RULES) == list(REJECTED)


@pytest.mark.parametrize("rule", get_args(Rule))
def test_a_rule_that_is_off_rejects_nothing(pair_batch, rule):
    every = get_args(Rule)
    assert {"empty", "drop", *every} == set(RULES)
    languages = {"src_language": "en", "tgt_language": "de"}
    table = pair_batch(REJECTED[rule])
    alone = RuleParameters(rules_off=[other for other in every if other != rule], **languages)
    assert apply(table, alone).rejected["rule"].to_pylist() == [rule]
    assert apply(table, RuleParameters(rules_off=list(every), **languages)).kept.equals(table)


def test_no_rows_are_no_trouble(pair_batch):
    kept, rejected = apply(pair_batch(), DEFAULTS)
    assert (kept.num_rows, rejected.num_rows) == (0, 0)
    assert rejected.schema.names == ["src", "tgt", "line", "rule"]


side = st.one_of(
    st.sampled_from([text for pair in (*REJECTED.values(), *KEPT) for text in pair]),
    st.text(st.characters(codec="utf-8"), max_size=40),
)


@settings(max_examples=30)
@given(pairs=st.lists(st.tuples(side, side), max_size=30), size=st.integers(1, 9))
def test_every_row_comes_out_once_in_order_however_the_rows_are_cut(pair_batch, pairs, size):
    table = pair_batch(*pairs)
    kept, rejected = apply(table, DEFAULTS)
    lines = kept["line"].to_pylist() + rejected["line"].to_pylist()
    assert sorted(lines) == table["line"].to_pylist()
    assert rejected["rule"].null_count == 0
    parts = [apply(table.slice(start, size), DEFAULTS) for start in range(0, len(pairs), size)]
    for whole, cut in (
        (kept, [part.kept for part in parts]),
        (rejected, [part.rejected for part in parts]),
    ):
        assert [row for part in cut for row in part.to_pylist()] == whole.to_pylist()
