import re
import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline import text as module
from pipeline.text import letters, match_key, normalise, normalise_column, unescape_entities

# Weighted towards what normalisation is about, joined at random.
ODD = (
    " \t\n\r\x0b\x1c\x1f\x85\xa0\u2003\u2028\u3000\u180e\u200b\u200c\u200d\u2060\ufeff\xad\0\x1b\x7f"
    "\u2581\u2800\u3164\ufe0f\U0001f3f4\U000e0067\U000e0062\U000e007f\ue000\ufdd0\U0010ffff\ud800"
    "\u0301\u0308\u0327\u093c\u0f71\u1161\u11a8\u1100\uac00\u212b\u0958\u2126\u0344\u2000\u0600"
    "eäuü&;#αибаक한글日ツパﾊﾟ٣²Ⅷﬁßİ"
)
texts = st.one_of(st.text(st.sampled_from(ODD)), st.text(st.characters(), max_size=30))

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("The clock strikes seven.", "The clock strikes seven."),
        ("  two\t\tspaces \n", "two spaces"),
        ("no\xa0break\u202fideographic\u3000em\u2003", "no break ideographic em"),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\rj\nk", "a b c d e f g h i j k"),
        ("\u2028a\x85", "a"),
        ("\u2581No\u2581body \u2581", "No body"),
        ("\u2800\u3164a\uffa0", "a"),
        ("u\u0308 A\u030a \u212b \u2126", "ü Å Å Ω"),
        ("\u1112\u1161\u11ab", "한"),
        ("sis\u200bter ba\xadkes\u2060 bread\ufeff", "sister bakes bread"),
        ("\u200b\ufeff", ""),
        ("\u200d \u200c", ""),
        ("\x1b[31mclock\x1b[0m\x07\x7f\x80\0", "[31mclock[0m"),
        ("left\u200e \u202eright\u202c \u2067x\u2069", "left right x"),
        ("a\u200d\u0308", "a\u200d\u0308"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        (f"{FAMILY} \u2603\ufe0f", f"{FAMILY} \u2603\ufe0f"),
        (f"{SCOTLAND} a\U000e0067\U000e007f", f"{SCOTLAND} a"),
        ("\U0001f3f4\U000e0067 \U0001f3f4\U000e007f", "\U0001f3f4 \U0001f3f4"),
        ("\ue000a\U0010fffe\ufdd0\U000f0000", "a"),
        ("\U0001d5ba \uff11\uff12 do\u0336or", "\U0001d5ba \uff11\uff12 do\u0336or"),
        ("\u0600\u0661 \u06dd", "\u0600\u0661 \u06dd"),
        ("half \ud83d\ude00 pair", "half pair"),
        ("\U0001fbff", "\U0001fbff"),
        ("&amp;", "&amp;"),
    ],
)
def test_normal_form(text, expected):
    assert normalise(text) == expected


@given(texts)
@example("a\u200d \u200d\u0308")
@example("e\u200b\u0301")
@example(" \u0338")
def test_normalising_twice_changes_nothing(text):
    once = normalise(text)
    assert normalise(once) == once


def test_every_code_point_has_a_normal_form():
    for first in range(0, sys.maxunicode + 1, 4_096):
        codes = map(chr, range(first, first + 4_096))
        once = normalise(" ".join(f"a{code}e {code}" for code in codes))
        assert normalise(once) == once
        assert once.encode().decode() == once


@given(texts)
def test_a_normal_form_is_single_spaced_nfc_that_can_be_written(text):
    form = normalise(text)
    assert form == " ".join(form.split(" ")) == " ".join(form.split())
    assert unicodedata.is_normalized("NFC", form)
    form.encode()
    assert not {"Cc", "Cs", "Co", "Zl", "Zp"} & set(map(unicodedata.category, form))


@given(
    st.text(
        st.characters(
            categories=["L", "N", "P", "S"], exclude_characters="\u2581\u2800\u3164\uffa0"
        )
    )
)
def test_what_is_seen_is_kept(text):
    assert normalise(text) == unicodedata.normalize("NFC", text)


def test_the_quick_check_lets_only_settled_characters_through():
    settled = re.compile(f"[ {module.SETTLED}]")
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    seconds = set()
    for character in every:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(chr(int(parts[1], 16)))
    for character in filter(settled.match, every):
        name = f"U+{ord(character):04X}"
        assert module._fate(ord(character)) in (ord(character), character), name
        assert unicodedata.normalize("NFC", character) == character, name
        assert unicodedata.combining(character) == 0, name
        assert character not in seconds, name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat &amp; the dog", "The cat & the dog"),
        ("&lt;here&gt; &#39;tied&#39;&nbsp;up", "<here> 'tied'\xa0up"),
        ("&amp;amp; &amp;lt;", "&amp; &lt;"),
        ("&#8222;&#x201C;&#X201c; &#132;", "„““ „"),
        ("AT&T R&D & ?a=1&copy=2 &amp", "AT&T R&D & ?a=1&copy=2 &amp"),
        (
            "&nosuch; &notit; &#0; &#xD800; &#x110000; &#;",
            "&nosuch; &notit; &#0; &#xD800; &#x110000; &#;",
        ),
        ("&szlig;&Eacute;", "ßÉ"),
    ],
)
def test_entities_lose_one_level(text, expected):
    assert unescape_entities(text) == expected


@given(st.lists(texts.filter(lambda text: not re.search("[\ud800-\udfff]", text))), st.booleans())
def test_a_column_is_normalised_row_by_row(rows, entities):
    rows = [*rows, "&amp;", "x &#160; y", "settled"]
    expected = [normalise(unescape_entities(row) if entities else row) for row in rows]
    array = pa.array(rows, pa.string())
    assert normalise_column(array, entities).to_pylist() == expected
    assert normalise_column(array.slice(1), entities).to_pylist() == expected[1:]
    chunked = pa.chunked_array([array.slice(0, 1), array.slice(1)])
    result = normalise_column(chunked, entities)
    assert isinstance(result, pa.Array)
    assert result.to_pylist() == expected


@pytest.mark.parametrize("rows", [[], [""], ["settled"]])
def test_a_settled_column_stays_as_it_is(rows):
    array = pa.array(rows, pa.string())
    assert normalise_column(array).equals(array)
    assert normalise_column(pa.chunked_array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The clock strikes seven.", "the CLOCK, strikes — seven"),
        ("Straße", "STRASSE"),
        ("Tür", "Tu\u0308r"),
        ("ﬁne １２", "fine 12"),
        ("It's 3 p.m.", "its 3pm"),
        ("كِتاب!", "كِتاب"),
        ("sis\u200bter\xad", "sister"),
        ("\u2603\ufe0f snow", "snow \u2603"),
    ],
)
def test_texts_that_differ_in_form_have_one_key(one, other):
    assert match_key(one) == match_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("12:30", "12:31"),
        ("May 3", "May 4"),
        ("...", "!"),
        ("\u2603\ufe0f", "\U0001f389\ufe0f"),
        ("कि", "की"),
        ("", " "),
    ],
)
def test_texts_that_differ_in_letters_or_digits_have_two_keys(one, other):
    assert match_key(one) != match_key(other)


@given(texts)
def test_a_key_is_empty_only_for_an_empty_text(text):
    assert (match_key(text) == "") == (text == "")


@given(texts)
@example("\u1100;\u1161")
def test_a_key_is_its_own_key(text):
    assert match_key(match_key(text)) == match_key(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("12:30", ""), ("Zimmer 12a, bitte!", "zimmerabitte"), ("हिन्दी ३", "हिन्दी"), ("...", "")],
)
def test_letters_leave_digits_out(text, expected):
    assert letters(text) == expected


def test_the_unicode_version_is_that_of_the_tables_used():
    assert unicodedata.unidata_version == module.UNICODE_VERSION
