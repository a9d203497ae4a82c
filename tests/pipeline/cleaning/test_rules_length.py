"""Which sizes of sides and of words the rules allow."""

import pyarrow as pa
import pytest

from pipeline.cleaning.rules_length import empty, length, long_word, ratio
from pipeline.cleaning.sizes import num_words


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
def test_empty(keeps, src, is_kept):
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
def test_length(keeps, src, is_kept):
    assert keeps(length, src, "x") is is_kept


def test_length_bounds_are_parameters(keeps):
    bounds = {"min_words": 2, "max_words": 3, "max_chars": 7}
    kept = {
        text: keeps(length, text, "a b", **bounds) for text in ("a", "a b", words(4), "abc defg")
    }
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
def test_ratio(keeps, src, tgt, is_kept):
    assert keeps(ratio, src, tgt) is is_kept


def test_ratio_bounds_are_parameters(keeps):
    assert not keeps(ratio, words(5), words(8), max_word_ratio=1.5)
    assert not keeps(ratio, words(5, "ab"), words(5, "abcd"), max_char_ratio=1.5)
    assert keeps(ratio, words(5), words(40), max_word_ratio=8, max_char_ratio=9)
    assert not keeps(ratio, "one", "two words", max_word_ratio=1.5, max_short_words=0)


@pytest.mark.parametrize(
    ("src", "is_kept"),
    [
        ("x" * 60, True),
        ("x" * 61, False),
        ("a " + "x" * 61 + " b", False),
        ("ü" * 60, True),
        ("ü" * 61, False),
        ("\U0001f600" * 61, False),
        ("x" * 40 + "\u2003" + "x" * 40, True),
        ("字" * 90, True),
        ("ไ" * 90, True),
        ("x" * 40 + "字" + "x" * 40, True),
        ("Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz", False),
        ("Netzwerksicherheitsdienste-Zertifikatsverzeichnis", True),
        ("", True),
    ],
)
def test_long_word(keeps, src, is_kept):
    assert keeps(long_word, src, "x") is is_kept


@pytest.mark.parametrize("most", [1, 63, 999])
def test_the_longest_word_is_a_parameter(keeps, most):
    assert keeps(long_word, "é" * most, "x", max_word_chars=most)
    assert not keeps(long_word, "é" * (most + 1), "x", max_word_chars=most)
