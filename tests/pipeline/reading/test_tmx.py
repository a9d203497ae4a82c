"""TMX: pairs of two languages, and no document can make the reader fetch, expand or hold much."""

import pytest

from pipeline.errors import CorpusError
from pipeline.reading import lines as lines_module
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_files
from pipeline.reading.lines import MAX_LINE_BYTES
from pipeline.reading.markup import one_line
from pipeline.sources import Layout


@pytest.fixture
def read(tmp_path):
    def read(content, columns=("en", "de")):
        path = tmp_path / "corpus.tmx"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        faults = Faults()
        layout = Layout(format="tmx", columns=columns)
        batches = read_files([path], layout, faults=faults, batch_rows=2)
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        return rows, faults.left_out.get("other_languages", 0)

    return read


def unit(*texts):
    return "".join(f'<tuv xml:lang="{lang}"><seg>{text}</seg></tuv>' for lang, text in texts)


def tmx(*units, head=""):
    body = "\n".join(f"<tu>{each}</tu>" for each in units)
    return f'{head}<tmx version="1.4"><header/><body>{body}</body></tmx>'


PAIR = unit(("en", "a"), ("de", "b"))


def test_the_hostile_variants_give_the_pairs_of_both_languages(read, shared_data):
    path = shared_data / "hostile" / "files" / "70_tmx_variants" / "corpus.tmx"
    rows, left_out = read(path.read_bytes())
    assert left_out == 1
    assert [row[2] for row in rows] == [1, 2, 3, 4, 6, 7], "the number of the unit in the file"
    assert rows[2][:2] == ("We walk to the lake.", "Wir gehen zum See.")
    assert rows[3][:2] == ("The clock strikes seven.", "Die Uhr schlägt sieben.")
    assert rows[4][1] == "Niemand geht ans Telefon."
    assert rows[5][:2] == ("We walk to the lake.", ""), "for `clean` to reject"


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (("en", "de"), [("colour", "Farbe", 1)]),
        (("en-us", "de"), [("color", "Farbe", 1)]),
        (("en_US", "en-GB"), [("color", "colour", 1)]),
        (("en-AU", "de-CH"), [("colour", "Farbe", 1)]),
        (("de", "pt-BR"), [("Farbe", "cor", 1)]),
    ],
)
def test_a_whole_code_comes_before_the_language_alone(read, columns, rows):
    texts = (("en-GB", "colour"), ("EN-US", "color"), ("de-DE", "Farbe"), ("pt", "cor"))
    assert read(tmx(unit(*texts)), columns)[0] == rows


def test_scripts_of_one_language_are_told_apart_by_the_whole_code(read):
    texts = (("zh-Hans", "简"), ("zh-Hant", "繁"))
    assert read(tmx(unit(*texts)), ("zh-Hant", "zh-Hans"))[0] == [("繁", "简", 1)]
    with pytest.raises(CorpusError, match="none of its 1 is in both"):
        read(tmx(unit(*texts)), ("zh-Hant", "zh-TW"))


def test_other_languages_are_named_where_there_is_no_pair(read):
    message = (
        r"units in `en` and `fr`, but none of its 2 is in both \(its languages: de, en\)\. Set"
    )
    with pytest.raises(CorpusError, match=message):
        read(tmx(PAIR, PAIR), ("en", "fr"))
    with pytest.raises(CorpusError, match=r"none of its 0 is in both \(its languages: none\)"):
        read("<html><p>no translation memory</p></html>")


def test_inline_codes_are_no_text_and_highlights_are(read):
    text = (
        'A <hi>b</hi><ph>{<sub>c</sub>}</ph><bpt i="1">&lt;i&gt;</bpt>d<ept i="1"/> &amp;#65;<ut/>'
    )
    rows, _ = read(tmx(unit(("en", text), ("de", "<![CDATA[<b> & ]]>&#xe4;"))))
    assert rows == [("A bd &#65;", "<b> & ä", 1)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "iso-8859-15"])
def test_the_encoding_is_what_xml_says(read, encoding):
    declared = "utf-16" if "16" in encoding else encoding.removesuffix("-sig")
    text = tmx(
        unit(("en", "ä €"), ("de", "ß")), head=f'<?xml version="1.0" encoding="{declared}"?>'
    )
    mark = "\ufeff" if encoding == "utf-16-le" else ""
    assert read((mark + text).encode(encoding))[0] == [("ä €", "ß", 1)]


def test_a_doctype_that_declares_nothing_is_read_and_nothing_fetched(read):
    head = '<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "http://127.0.0.1:1/tmx14.dtd">'
    assert read(tmx(PAIR, head=head))[0] == [("a", "b", 1)]
    undeclared = tmx(unit(("en", "a &nbsp; c"), ("de", "b")), head=head)
    with pytest.raises(CorpusError, match="without entities of its own, but has `nbsp`"):
        read(undeclared)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tmx(PAIR, head='<!DOCTYPE tmx [<!ENTITY a "b">]>'), "without declarations in a DTD"),
        (tmx(PAIR, head="<!DOCTYPE tmx [<!ELEMENT tmx ANY>]>"), "without declarations in a DTD"),
        (tmx(PAIR, head='<!DOCTYPE tmx SYSTEM "x" [<!ENTITY % a SYSTEM "b">%a;]>'), "in a DTD"),
        (tmx(unit(("en", "&a;"), ("de", "b"))), r"not \(undefined entity\): line 1, column \d+"),
        (
            tmx(PAIR)[:-3],
            r"well-formed XML, but is not \(unclosed token\).*after 1 translation unit",
        ),
        (tmx(PAIR) + "x", "junk after document element"),
        (tmx(PAIR).encode().replace(b"a<", b"\xff<"), r"invalid token\)\): line 1"),
        (tmx(unit(("en", "&#xD800;"), ("de", "b"))), "reference to invalid character number"),
        (tmx(PAIR, head='<?xml version="1.0" encoding="x-none"?>'), "unknown encoding"),
        (tmx(PAIR, head='<?xml version="1.0" encoding="utf-7"?>'), "must be"),
        (tmx("<a>" * 100 + "</a>" * 100), "at most 64 elements inside each other"),
        ("", "no element found"),
        (b"\x1f\x8b", "ends in the middle"),
    ],
)
def test_what_is_no_plain_tmx_is_refused(read, content, message):
    with pytest.raises(CorpusError, match=message):
        read(content)


def test_neither_a_text_nor_a_tag_can_fill_the_memory(read, monkeypatch):
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", 2**18)
    too_long = "x" * (MAX_LINE_BYTES + 1)
    with pytest.raises(CorpusError, match="must have texts of at most 4,194,304 characters"):
        read(tmx(unit(("en", too_long), ("de", "b"))))
    with pytest.raises(CorpusError, match="must have tags of at most 4,194,304 bytes"):
        read(tmx(f'<tuv a="{too_long}{too_long}">'))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a  b ", "a  b "),
        ("a\nb", "a b"),
        ("\n  a \r\n\t b\r", "a b"),
        ("a\u2028b", "a\u2028b"),
        (" \n ", ""),
    ],
)
def test_a_line_break_is_one_space_or_none_at_the_ends(text, line):
    assert one_line(text) == line
