"""What the sides of a pair may hold, and what must agree between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cleaning.rules_content import drop, language, letters, mojibake, numbers, tags, urls
from pipeline.cleaning.rules_parameters import RuleParameters


@pytest.mark.parametrize(
    ("patterns", "is_kept"),
    [
        ((), True),
        (("Copyright",), False),
        (("nothing", "^Copy"), False),
        ((r"^\d",), True),
        (("(?i)COPYRIGHT [0-9]+",), False),
    ],
)
def test_drop(keeps, patterns, is_kept):
    assert keeps(drop, "Copyright 2014 by us", "Von uns", drop=patterns) is is_kept


@pytest.mark.timeout(20)
def test_no_pattern_is_slow(keeps):
    assert keeps(drop, "a" * 100_000, "b", drop=("(a*)*c", "(a|aa)+$b"))


@pytest.mark.parametrize(
    ("src", "is_kept"),
    [
        ("The cat waits.", True),
        ("...", False),
        ("— ? !", False),
        ("12:30", False),
        ("a 1 1", False),  # 1 of 3 words
        ("aa aa 1 1 1", True),  # 2 of 5 words
        ("aaa aaa 1 1 1 1", False),  # 2 of 6 words
        ("aaa bb 11 11 1", True),  # 5 of 10 characters
        ("aa bb 11 11 11", False),  # 4 of 10
        ("aa bb 111 11", True),  # 4 of 9, but 4 words
        ("</s>", True),
        ("Ctrl+F5", True),
        ("हिन्दी भाषा में लिखा है", True),
        ("Это очень старый дом.", True),
        ("我们今天去看湖。", True),
        ("。。。、、", False),
        ("我们 1 2 3 4 5", False),
        ("ผมไม่รู้จักผู้หญิงคนนั้น", True),
        ("x" * 5_000, True),
    ],
)
def test_letters(keeps, src, is_kept):
    assert keeps(letters, src, "one") is is_kept


def test_shares_of_letters_are_parameters(keeps):
    assert keeps(letters, "12:30", "12.30", min_letter_words=0.0)
    assert not keeps(letters, "a 1", "a 1", min_letter_words=0.51)
    assert keeps(letters, "a1 b2 c3 d4 e5", "a", min_letter_chars=0.5)
    assert not keeps(letters, "a1 b2 c3 d4 e5", "a", min_letter_chars=0.51)


@pytest.mark.parametrize(
    ("src", "tgt", "is_kept"),
    [
        ("25 euros", "25 Euro", True),
        ("25 euros", "52 Euro", False),
        ("25 euros", "fünfundzwanzig Euro", True),  # a side without digits
        ("25 to 30 euros", "25 bis 30 Euro", True),
        ("25 to 30 euros", "25 bis 35 Euro", False),  # 1 in both, 2 in one
        ("25 euros at 12:00", "25 Euro um 12 Uhr", True),  # 2 in both, 1 in one
        ("1, 2, 3 and 4", "1, 2 und 3", True),
        ("1,000 rows", "1.000 Zeilen", True),
        ("1,000 rows", "1000 Zeilen", True),
        ("12,345,678.25", "12 345 678,25", True),
        ("1'234.5", "1234,5", True),
        ("3.14", "3,14", True),
        ("3.14", "314", False),
        ("in 2014 300 people", "2014 waren es 300 Leute", True),
        ("March 5, 2014", "5.3.2014", True),
        ("05/03/2014", "5.3.2014", True),
        ("7 and 7", "7", True),
        ("١٢ كتابا", "12 books", True),
        ("१२ किताबें", "13 books", False),
        ("１２ 冊", "12 books", True),
        ("at 2:30 p.m. on day 5", "um 14.30 Uhr am 5. Tag", True),
        ("at 2:30 p.m.", "um 2 Uhr 30", True),
        ("at 2:30 p.m.", "um 15:30 Uhr", False),
        ("at 2 PM", "um 14 Uhr", True),
        ("at 2 PM", "um 15 Uhr", False),
        ("at 12:05 AM", "um 0.05 Uhr", True),
        ("at 12 a.m.", "um 24 Uhr", False),
        ("at 12:15 pm", "um 12:15 Uhr", True),
        ("007", "7", True),
        ("0", "00", True),
        ("m² and H₂O", "3 m²", True),  # neither is a decimal digit
    ],
)
def test_numbers(keeps, src, tgt, is_kept):
    assert keeps(numbers, src, tgt) is is_kept


def test_the_overlap_of_numbers_is_a_parameter(keeps):
    assert keeps(numbers, "25 euros", "52 Euro", min_number_overlap=1 / 3)
    assert not keeps(numbers, "25 euros", "52 Euro", min_number_overlap=0.34)
    assert not keeps(numbers, "1 and 2", "1", min_number_overlap=1.5)


@given(number=st.integers(1000, 10**12), decimals=st.integers(0, 999))
def test_separators_change_no_number(keeps, number, decimals):
    english = f"{number:,}.{decimals}"
    for other in (
        f"{number}.{decimals}",
        english.replace(",", " "),
        english.replace(",", "'"),
        english.translate({ord(","): ".", ord("."): ","}),
    ):
        assert keeps(numbers, english, other, min_number_overlap=2.0)


@pytest.mark.timeout(20)
def test_endless_numbers_are_compared_too(keeps):
    assert keeps(numbers, "1" * 100_000, "1" * 100_000)
    assert not keeps(numbers, "1 234 " * 30_000 + "5", "2")


@pytest.mark.parametrize(
    ("src", "tgt", "is_kept"),
    [
        ("See https://a.example/x.", "Siehe https://a.example/x.", True),
        ("See https://a.example/en", "Siehe http://www.A.example/de.", True),
        ("See https://a.example", "Siehe https://b.example", False),
        ("See https://a.example", "Siehe dort", True),  # a side without addresses
        ("See www.a.example", "Siehe https://a.example", True),
        ("See www.a.example", "Siehe www.b.example", False),
        ("a.example or b.example", "b.example", True),  # no addresses, as far as one can tell
        ("https://a.example https://b.example", "https://b.example https://a.example", True),
        ("https://a.example https://b.example", "https://a.example", False),
        ("file:///tmp/a", "file:///tmp/b", True),
        ("https://a.example:80/(x)", "“https://a.example”", True),
    ],
)
def test_urls(keeps, src, tgt, is_kept):
    assert keeps(urls, src, tgt) is is_kept


@pytest.mark.timeout(20)
def test_endless_addresses_are_compared_too(keeps):
    assert not keeps(urls, "a" * 100_000 + "://" + "b." * 100_000, "www.c")


@pytest.mark.parametrize(
    ("src", "tgt", "is_kept"),
    [
        ("The <b>grey</b> cat", "Die <b>graue</b> Katze", True),
        ("The <b>grey</b> cat", "Die graue Katze", False),
        ("The grey cat<br>", "Die graue Katze<BR />", True),
        ("The grey cat<br>", "Die graue Katze<br><br>", False),
        ("<a href='en'>door</a>", "<a href='de'>Tür</a>", True),
        ("<i>one</i> <b>two</b>", "<b>eins</b> <i>zwei</i>", True),
        ("one <!-- two", "eins", False),
        ("Open <file name>.", "<Dateiname> öffnen.", True),  # no HTML
        ("2 < 3 > 1", "3 > 2", True),
        ("<s> Rain </s> <unk>", "<s> Regen </s> <pad>", True),
        ("a <backup> file", "eine Datei", True),
        ("<H1>Title", "Titel", False),
    ],
)
def test_tags(keeps, src, tgt, is_kept):
    assert keeps(tags, src, tgt) is is_kept


def test_no_tag_may_stay_where_the_same_ones_may_not(keeps):
    assert not keeps(tags, "<b>grey</b>", "<b>grau</b>", same_tags=False)
    assert keeps(tags, "<file name>", "<Dateiname>", same_tags=False)


@pytest.mark.timeout(20)
def test_endless_markup_is_compared_too(keeps):
    assert not keeps(tags, "<a " * 30_000, "<b>" * 10_000)


def damaged(text, encoding):
    """UTF-8 read in an encoding of one byte a character."""
    return text.encode().decode(encoding)


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("Tür", True),
        ("Ça va, señor – naïve “façade”", True),
        (damaged("Tür", "latin-1"), False),
        (damaged("Straße 5", "cp1252"), False),
        (damaged("5 °C", "cp1252"), False),
        (damaged("it’s", "cp1252"), False),
        (damaged("дом", "cp1252"), False),
        (damaged("\ufeffdoor", "cp1252"), False),
        ("T\ufffdr", False),
        ("stra\xc3e", False),  # the second character was a control, and removed
        ("\u00d0\u00b3", False),
    ],
)
def test_mojibake(keeps, text, is_kept):
    assert keeps(mojibake, text, "door", src_language="en", tgt_language="de") is is_kept


@pytest.mark.parametrize(
    ("code", "text", "is_kept"),
    [
        ("pt", "NÃO É AMANHÃ. “MAÇÔ", True),
        ("pt-BR", "São Tomé", True),
        ("pt", damaged("não", "cp1252"), False),
        ("de", "NÃO", False),
        ("fr", "Âge ingrat", True),
        ("fr", damaged("« été »", "cp1252"), False),
        ("ro", "România, Â", True),
        ("en", "Âge", False),
        ("vi", "LÃNH ĐẠO, ÂM NHẠC", True),
        ("", "Âge", False),
    ],
)
def test_languages_with_such_letters_are_spared(pair_batch, code, text, is_kept):
    table = pair_batch((text, "x"), ("x", text))
    src, tgt = RuleParameters(src_language=code), RuleParameters(tgt_language=code)
    assert mojibake(table, src)[0].as_py() is is_kept
    assert mojibake(table, tgt)[1].as_py() is is_kept


ENGLISH, GERMAN = "My sister bakes bread on Sunday.", "Meine Schwester backt am Sonntag Brot."
FRENCH = "Ma sœur fait du pain le dimanche."


@pytest.mark.parametrize(
    ("src", "tgt", "is_kept"),
    [
        (ENGLISH, GERMAN, True),
        (GERMAN, ENGLISH, False),
        (ENGLISH, FRENCH, False),
        (FRENCH, GERMAN, False),
        (ENGLISH.upper(), GERMAN.upper(), True),
        (ENGLISH.upper(), FRENCH.upper(), False),
        ("Bonjour madame", GERMAN, True),  # two words
        ("Bonjour & madame", GERMAN, True),  # two with letters
        ("Bonjour ma chère madame", GERMAN, False),
        ("", "", True),
    ],
)
def test_language(pair_batch, src, tgt, is_kept):
    bounds = RuleParameters(src_language="en", tgt_language="de-AT")
    assert language(pair_batch((ENGLISH, GERMAN), (src, tgt)), bounds).to_pylist() == [
        True,
        is_kept,
    ]


@pytest.mark.parametrize("code", ["", "tlh", "zzz"])
def test_an_unknown_language_is_not_checked(pair_batch, code):
    table = pair_batch((ENGLISH, FRENCH), (FRENCH, ENGLISH))
    known = RuleParameters(src_language="en", tgt_language=code)
    assert language(table, known).to_pylist() == [True, False]
    assert language(table, RuleParameters(src_language=code, tgt_language=code)).to_pylist() == [
        True,
        True,
    ]


def test_the_score_of_a_language_is_a_parameter(pair_batch):
    odd = ("What an absurd idea!", "Was für eine absurde Idee!")
    table = pair_batch((ENGLISH, GERMAN), odd, (GERMAN, ENGLISH))
    answers = [
        language(
            table, RuleParameters(src_language="en", tgt_language="de", min_language_score=score)
        ).to_pylist()
        for score in (0.0, 0.5, 1.0)
    ]
    assert answers == [[True, True, True], [True, False, False], [False, False, False]]
