"""Which pairs are copies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cleaning import rules_copy
from pipeline.cleaning.rules_copy import copied
from pipeline.cleaning.rules_parameters import RuleParameters

SENTENCE = "Meine Schwester backt am Sonntag Brot"  # 32 letters: 3 edits are 0.906, 4 are 0.875


@pytest.mark.parametrize(
    ("src", "tgt", "is_kept"),
    [
        (SENTENCE, SENTENCE, False),
        (SENTENCE, f"„{SENTENCE.upper()}“ (12)!", False),
        (SENTENCE, "Meine Schwester backt am Montag Brot", False),
        (SENTENCE, SENTENCE.replace("Brot", "xxxt"), False),
        (SENTENCE, SENTENCE.replace("Brot", "xxxx"), True),
        (SENTENCE, "yyy" + SENTENCE, False),
        (SENTENCE, "yyyy" + SENTENCE, True),
        (SENTENCE, "My sister bakes bread on Sunday", True),
        (SENTENCE, " ".join(reversed(SENTENCE.split())), True),
        ("Berlin", "Berlin", True),
        ("12:30", "12:30", True),
        ("1 2 3 4 5", "1 2 3 4 5", True),
        ("— ? ! .", "— ? ! .", True),
        ("Los Angeles, USA", "Los Angeles, USA", True),
        ("Los Angeles in USA", "Los Angeles in USA", False),
        ("Tom ist Pilot.", "Tom is a pilot.", True),
        ("a b c d e f g h i j", "a b c d e f g h i x", False),
        ("a b c d e f g h i", "a b c d e f g h x", True),
        ("Straße an der Tür hier", "STRASSE AN DER TÜR HIER", False),
        ("Это очень старый дом", "это очень старый дом!", False),
        ("Это очень старый дом", "Це дуже старий будинок", True),
        ("我们今天去看湖。", "我们今天去看湖", False),
        ("我们今天去看湖。", "私たちは今日湖を見る", True),
    ],
)
def test_copied(keeps, src, tgt, is_kept):
    assert keeps(copied, src, tgt) is is_kept


def test_copied_similarity_is_a_parameter(keeps):
    near = SENTENCE.replace("Brot", "xxxx")
    assert not keeps(copied, SENTENCE, near, min_copy_similarity=0.87)
    assert keeps(copied, SENTENCE, SENTENCE.replace("Brot", "Brod"), min_copy_similarity=1.0)
    assert not keeps(copied, SENTENCE, SENTENCE.lower(), min_copy_similarity=1.0)


@pytest.mark.timeout(20)
def test_endless_copies_are_told_by_their_beginning(keeps):
    line = "copy " * 100_000
    assert not keeps(copied, line, line.replace("copy copy copy", "copy cozy copy"))
    assert keeps(copied, line, "pcyo " * 100_000)


def edit_distance(one, other):
    """The textbook's table, whole."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        previous, row = row, [i]
        for j, other_letter in enumerate(other, start=1):
            row.append(
                min(previous[j] + 1, row[-1] + 1, previous[j - 1] + (letter != other_letter))
            )
    return row[-1]


short = st.text("abc", max_size=9)


@given(short, short, st.integers(0, 10))
def test_edits_are_counted_as_levenshtein_does(one, other, limit):
    assert rules_copy._edits_are_within(one, other, limit) is (edit_distance(one, other) <= limit)


word = st.text("abcdeäж", min_size=1, max_size=6)


@given(sentence=st.lists(word, min_size=4, max_size=9), data=st.data())
def test_letter_counts_rule_out_no_copy(keeps, sentence, data):
    src = " ".join([*sentence, "straße"])  # folding makes two letters of one
    letters = len(src.replace(" ", "").casefold())
    limit = int((1 - RuleParameters().min_copy_similarity) * letters + 1e-9)
    near = list(src)
    for _ in range(data.draw(st.integers(0, limit))):
        at = data.draw(st.sampled_from([i for i, letter in enumerate(near) if letter not in " ß"]))
        near[at] = "x"
    assert not keeps(copied, src, "".join(near).upper())


def test_the_order_of_rows_holds_past_one_tally(pair_batch):
    other = "My sister bakes bread on Sunday"
    table = pair_batch(
        *[(SENTENCE, SENTENCE if row % 1000 == 7 else other) for row in range(20_000)]
    )
    dropped = [
        row for row, keep in enumerate(copied(table, RuleParameters()).to_pylist()) if not keep
    ]
    assert dropped == list(range(7, 20_000, 1000))
