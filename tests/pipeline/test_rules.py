import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import rules
from pipeline.corpus import read_pairs
from pipeline.errors import ConfigError
from pipeline.rules import RULES, RuleParameters, apply, copied, empty, length, num_words, ratio
from pipeline.text import normalise_column

DEFAULTS = RuleParameters()


def batch(*pairs):
    src, tgt = zip(*pairs, strict=True) if pairs else ((), ())
    columns = {"src": pa.array(src, pa.string()), "tgt": pa.array(tgt, pa.string())}
    return pa.record_batch({**columns, "line": pa.array(range(1, len(pairs) + 1), pa.int64())})


def keeps(rule, src, tgt, parameters=DEFAULTS):
    """What a rule says of a pair, which must not depend on its direction or its neighbours."""
    table = batch(("Guten Tag", "Hello"), (src, tgt), (tgt, src), ("", ""))
    for part in (table, table.slice(1, 2)):
        keep = rule(part, parameters)
        assert isinstance(keep, pa.BooleanArray)
        assert len(keep) == part.num_rows
        assert keep.null_count == 0
    first, second = keep.to_pylist()
    assert first == second
    return first


def words(count, word="w"):
    return " ".join([word] * count)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("one", 1),
        ("one two-and a half", 4),
        ("  not\tnormal\u3000 \xa0text ", 3),
        ("一二三", 3),
        ("カタカナ", 4),
        ("ﾊﾝｶｸ", 4),
        ("人々", 2),
        ("東京 Tower 2", 4),
        ("東京Tower。", 3),
        ("ไทย", 3),
        ("ລາວ", 3),
        ("ខ្មែរ", 5),
        ("မြန်မာ", 6),
        ("한국 사람", 2),
        ("один два", 2),
        ("हिन्दी भाषा", 2),
        ("\U00020000\U0002a700", 2),
    ],
)
def test_words_are_characters_where_a_script_has_no_spaces(text, count):
    assert num_words(pa.array([text, "x y"])).to_pylist() == [count, 2]


@pytest.mark.parametrize(
    ("src", "is_kept"),
    [
        ("a", True),
        (".", True),
        ("", False),
        (" ", False),
        ("\t\xa0\u3000", False),
        ("\u200b", False),
    ],
)
def test_empty(src, is_kept):
    assert keeps(empty, src, "x") is is_kept


@pytest.mark.parametrize(
    ("src", "is_kept"),
    [
        ("w", True),
        (words(150), True),
        (words(151), False),
        ("x" * 1023, True),
        ("x" * 1024, False),
        ("ü" * 1023, True),
        ("\U0001f600" * 1023, True),
        ("字" * 150, True),
        ("字" * 151, False),
        ("", False),
    ],
)
def test_length(src, is_kept):
    assert keeps(length, src, "x") is is_kept


def test_length_bounds_are_parameters():
    bounds = RuleParameters(min_words=2, max_words=3, max_chars=7)
    kept = {text: keeps(length, text, "a b", bounds) for text in ("a", "a b", words(4), "abc defg")}
    assert kept == {"a": False, "a b": True, words(4): False, "abc defg": False}


@pytest.mark.parametrize(
    ("src", "tgt", "is_kept"),
    [
        (words(5), words(10), True),
        (words(5), words(11), False),
        (words(1, "much"), words(4, "more"), True),  # at most 4 words a side
        (words(2, "much"), words(5, "more"), False),
        ("x" * 10, "x" * 100, True),
        ("aa a a a a", "b" * 26 + " b b", True),  # 10 : 30 characters
        ("aa a a a a", "b" * 27 + " b b", False),  # 10 : 31
        ("", words(5), False),
        ("私はペンを持っています。", "I have a pen.", True),
        (
            "国际社会必须立即采取行动。",
            "The international community must take action without delay.",
            True,
        ),
        ("国际社会必须立即采取行动。", "Yes, it must.", True),
        ("国际社会必须立即采取行动，不能再等待。", "Yes, so.", False),
        ("我们今天去看湖。", "私たちは今日湖を見に行きます。", True),
        ("我们去湖。", "私たちは今日湖を見に行きます。", False),
        ("우리는 오늘 호수에 갑니다 정말로", "We are walking to the lake today, really.", True),
        ("ผมไม่รู้จักผู้หญิงคนนั้น", "I do not know that woman.", True),
    ],
)
def test_ratio(src, tgt, is_kept):
    assert keeps(ratio, src, tgt) is is_kept


def test_ratio_bounds_are_parameters():
    assert not keeps(ratio, words(5), words(8), RuleParameters(max_word_ratio=1.5))
    assert not keeps(ratio, words(5, "ab"), words(5, "abcd"), RuleParameters(max_char_ratio=1.5))
    assert keeps(ratio, words(5), words(40), RuleParameters(max_word_ratio=8, max_char_ratio=9))


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
def test_copied(src, tgt, is_kept):
    assert keeps(copied, src, tgt) is is_kept


def test_copied_similarity_is_a_parameter():
    near = SENTENCE.replace("Brot", "xxxx")
    assert not keeps(copied, SENTENCE, near, RuleParameters(min_copy_similarity=0.87))
    exact = RuleParameters(min_copy_similarity=1.0)
    assert keeps(copied, SENTENCE, SENTENCE.replace("Brot", "Brod"), exact)
    assert not keeps(copied, SENTENCE, SENTENCE.lower(), exact)


@pytest.mark.timeout(5)
def test_endless_copies_are_told_by_their_beginning():
    line = words(100_000, "copy")
    assert not keeps(copied, line, line.replace("copy copy copy", "copy cozy copy"))
    assert keeps(copied, line, words(100_000, "pcyo"))


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


@settings(deadline=None)
@given(short, short, st.integers(0, 10))
def test_edits_are_counted_as_levenshtein_does(one, other, limit):
    assert rules._edits_are_within(one, other, limit) is (edit_distance(one, other) <= limit)


word = st.text("abcdeäж", min_size=1, max_size=6)


@settings(deadline=None)
@given(st.lists(word, min_size=4, max_size=9), st.data())
def test_letter_counts_rule_out_no_copy(sentence, data):
    src = " ".join([*sentence, "straße"])  # folding makes two letters of one
    letters = len(src.replace(" ", "").casefold())
    limit = int((1 - DEFAULTS.min_copy_similarity) * letters + 1e-9)
    near = list(src)
    for _ in range(data.draw(st.integers(0, limit))):
        at = data.draw(st.sampled_from([i for i, letter in enumerate(near) if letter not in " ß"]))
        near[at] = "x"
    assert not keeps(copied, src, "".join(near).upper())


def test_rows_go_to_the_first_rule_that_rejects_them():
    sentence = words(151, "copy")
    table = batch(
        ("The cat waits.", "Die Katze wartet."),
        ("", sentence),
        (sentence, sentence),
        (SENTENCE, SENTENCE),
        (words(60, "and"), "Ja."),
        ("We walk to the lake.", "Wir gehen zum See."),
    )
    kept, rejected = apply(table, DEFAULTS)
    assert kept.schema == table.schema
    assert kept["line"].to_pylist() == [1, 6]
    assert rejected.schema == table.schema.append(pa.field("rule", pa.string()))
    assert rejected["line"].to_pylist() == [2, 3, 4, 5]
    assert rejected["rule"].to_pylist() == ["empty", "length", "copied", "ratio"]
    assert list(RULES) == ["empty", "length", "ratio", "copied"]


def test_a_rule_that_is_off_rejects_nothing():
    table = batch((SENTENCE, SENTENCE), (words(60, "and"), "Ja."))
    assert apply(table, RuleParameters(off=frozenset({"copied", "ratio"}))).kept.equals(table)
    everything = apply(batch(("", "")), RuleParameters(off=frozenset(RULES)))
    assert (everything.kept.num_rows, everything.rejected.num_rows) == (1, 0)


def test_an_unknown_rule_is_named():
    message = "Rules that are off must be of empty, length, ratio, copied; not lenght."
    with pytest.raises(ConfigError, match=re.escape(message)):
        RuleParameters(off=frozenset({"lenght", "ratio"}))


def test_no_rows_are_no_trouble():
    kept, rejected = apply(batch(), DEFAULTS)
    assert (kept.num_rows, rejected.num_rows) == (0, 0)
    assert rejected.schema.names == ["src", "tgt", "line", "rule"]


side = st.one_of(
    st.sampled_from(["", SENTENCE, SENTENCE.upper(), words(151), "Ja.", "字" * 9]),
    st.text(st.characters(codec="utf-8"), max_size=40),
)


@settings(deadline=None)
@given(st.lists(st.tuples(side, side), max_size=30), st.integers(1, 9))
def test_every_row_comes_out_once_in_order_however_the_rows_are_cut(pairs, size):
    table = batch(*pairs)
    kept, rejected = apply(table, DEFAULTS)
    assert (
        sorted(kept["line"].to_pylist() + rejected["line"].to_pylist()) == table["line"].to_pylist()
    )
    assert rejected["rule"].null_count == 0
    parts = [apply(table.slice(start, size), DEFAULTS) for start in range(0, len(pairs), size)]
    for column in ("src", "tgt", "line"):
        assert [row for part in parts for row in part.kept[column].to_pylist()] == kept[
            column
        ].to_pylist()
    for column in ("line", "rule"):
        joined = [row for part in parts for row in part.rejected[column].to_pylist()]
        assert joined == rejected[column].to_pylist()


def test_the_order_of_rows_holds_past_one_tally():
    table = batch(
        *[
            (SENTENCE, SENTENCE if row % 1000 == 7 else "My sister bakes bread on Sunday")
            for row in range(20_000)
        ]
    )
    assert apply(table, DEFAULTS).rejected["line"].to_pylist() == list(range(8, 20_000, 1000))


HOSTILE_LEFT = {
    "00_clean": (10, {}),
    "01_u2028": (10, {}),
    "02_u2029": (10, {}),
    "03_u0085": (10, {}),
    "04_vt": (10, {}),
    "06_fs_gs_rs": (10, {}),
    "07_crlf": (10, {}),
    "08_crlf_one_side": (10, {}),
    "13_bom_both": (10, {}),
    "14_bom_inside": (10, {}),
    "23_nul": (10, {}),
    "24_controls": (10, {}),
    "27_empty_lines": (7, {"empty": 3}),
    "28_blank_lines": (5, {"empty": 5}),
    "33_long_line": (9, {"length": 1}),
    "34_long_token": (9, {"length": 1}),
    "78_html_entities": (10, {}),
    "79_zero_width": (10, {}),
    "81_nfc_nfd": (20, {}),
    "82_emoji": (10, {}),
    "83_spm_meta": (10, {}),
    "84_special_tokens": (10, {}),
    "85_whitespace": (10, {}),
    "86_odd_codepoints": (10, {}),
    "89_same_source": (13, {}),
    "90_same_target": (12, {}),
    "91_copied": (9, {"copied": 1}),
    "93_length_ratio": (8, {"ratio": 2}),
    "95_markup": (10, {}),
}
EQUAL_TO_CLEAN = [
    "01_u2028",
    "02_u2029",
    "03_u0085",
    "04_vt",
    "06_fs_gs_rs",
    "07_crlf",
    "08_crlf_one_side",
    "13_bom_both",
    "14_bom_inside",
    "23_nul",
    "79_zero_width",
    "83_spm_meta",
    "85_whitespace",
]


def cleaned(folder):
    (pairs,) = read_pairs(folder / "train.en", folder / "train.de")
    sides = {side: normalise_column(pairs[side]) for side in ("src", "tgt")}
    return apply(pa.record_batch({**sides, "line": pairs["line"]}), DEFAULTS)


@pytest.mark.parametrize("case", HOSTILE_LEFT)
def test_hostile_pairs_go_to_the_rule_meant_for_them(shared_data, case):
    kept, rejected = cleaned(shared_data / "hostile" / "files" / case)
    assert (kept.num_rows, Counter(rejected["rule"].to_pylist())) == HOSTILE_LEFT[case]


@pytest.mark.parametrize("case", EQUAL_TO_CLEAN)
def test_harmless_damage_is_mended(shared_data, case):
    files: Path = shared_data / "hostile" / "files"
    clean, mended = cleaned(files / "00_clean").kept, cleaned(files / case).kept
    differing = [
        row
        for row, (a, b) in enumerate(zip(clean.to_pylist(), mended.to_pylist(), strict=True), 1)
        if a != b
    ]
    assert differing == []


def test_hostile_sentences_come_out_as_they_should(shared_data):
    files: Path = shared_data / "hostile" / "files"
    entities = cleaned(files / "78_html_entities").kept
    assert entities["src"][3].as_py() == "Two boats <here> 'tied' up &amp; down."
    once = cleaned(files / "81_nfc_nfd").kept
    assert len(set(zip(once["src"].to_pylist(), once["tgt"].to_pylist(), strict=True))) == 10
    emoji = cleaned(files / "82_emoji").kept["src"][9].as_py()
    assert (
        f"{emoji}\n" == (files / "82_emoji" / "train.en").read_text().splitlines(keepends=True)[9]
    )
