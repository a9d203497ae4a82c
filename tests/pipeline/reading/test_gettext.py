"""Gettext: what is translated is a pair; all else is left out by name, or refused."""

import gzip
import struct

import pytest

from pipeline.errors import CorpusError
from pipeline.reading import gettext
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_files
from pipeline.sources import Layout

CATALOGUE = r"""# Somebody's comment.
msgid ""
msgstr ""
"Project-Id-Version: x\n"
"Content-Type: text/plain; charset=UTF-8\n"

#. for translators
#: main.c:7
#, c-format
msgid "Open %s"
msgstr "%s öffnen"

#, fuzzy, c-format
#| msgid "Old"
msgid "Shut"
msgstr "Auf"

msgid "Not yet"
msgstr ""

msgctxt "menu"
msgid ""
"Two "
"parts\n"
"\t\"\\\041"
msgstr "Zwei"
" Teile"
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#~ msgid "Gone"
#~ msgstr "Weg"

#~ msgid "Gone too"
#~ msgstr "Auch "
#~ "weg"
#
msgid "Last"
msgstr "Letzte"
"""
PAIRS = [
    ("Open %s", "%s öffnen", 10),
    ('Two parts\n\t"\\!', "Zwei Teile", 22),
    ("Last", "Letzte", 40),
]
LEFT_OUT = {"header": 1, "fuzzy": 1, "untranslated": 1, "plural": 1, "obsolete": 2}


@pytest.fixture
def read(tmp_path):
    def read(content, form="po", policy="stop", batch_rows=2):
        path = tmp_path / "corpus"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        faults = Faults(policy)
        layout = Layout(format=form, on_bad_rows=policy)
        batches = read_files([path], layout, faults=faults, batch_rows=batch_rows)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], faults

    return read


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_translated_messages_are_pairs_and_others_are_counted(read, batch_rows, end):
    rows, faults = read(CATALOGUE.replace("\n", end), batch_rows=batch_rows)
    assert rows == PAIRS
    assert faults.left_out == LEFT_OUT


def test_packed_catalogues_are_read(read):
    assert read(gzip.compress(CATALOGUE.encode()))[0] == PAIRS
    assert read(gzip.compress(mo([("a", "b")])), "mo")[0] == [("a", "b", 1)]


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        (b"\xc3\xb6ffnen", b"\xf6ffnen", "encoding", r"line 10, byte \d+ is not UTF-8 \(F6"),
        (b'"Open', b'"\xf6', "encoding", r"line 10, byte \d+ is not UTF-8 \(F6"),
        (b'"Open', rb'"\q', "escape", r"line 10 has an escape that stands for no character"),
        (b'"Open', rb'"\344', "escape", r"line 10 has an escape that stands for no character"),
    ],
)
def test_a_text_that_is_none_is_a_fault_of_its_message(read, old, new, kind, message):
    content = CATALOGUE.encode().replace(old, new)
    with pytest.raises(CorpusError, match=message):
        read(content)
    rows, faults = read(content, policy="reject")
    assert rows == PAIRS[1:]
    assert faults.rejected == {kind: 1}
    assert faults.left_out == LEFT_OUT


def test_a_comment_need_not_be_utf8(read):
    assert read(CATALOGUE.encode().replace(b"Somebody", b"\xfc"))[0] == PAIRS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello\n", r"must be a PO file, but line 1 is none of its lines: 'hello'"),
        ('"text"\n', r"line 1 is none of its lines"),
        ('msgid "a"\nmsgid "b"\nmsgstr "c"\n', r"line 2 is none of its lines"),
        ('msgid "a\nmsgstr "b"\n', r"line 1 is none of its lines"),
        ('msgid "a"\n', r"`msgid` and `msgstr` in each message, but the one at line 1 lacks one"),
        ('msgctxt "a"\nmsgstr "b"\n', r"but the one at line 1 lacks one"),
        (CATALOGUE.replace("UTF-8", "ISO-8859-1"), r"must be in UTF-8, but says that it is in ISO"),
        ('msgid ""\nmsgstr "x"\n', r"none is left \(1 header\)"),
        ("", "is empty"),
    ],
)
def test_what_is_no_catalogue_is_refused(read, content, message):
    with pytest.raises(CorpusError, match=message):
        read(content)


def mo(pairs, order="<"):
    texts, places, start = b"", ([], []), 28 + 16 * len(pairs)
    for pair in pairs:
        for place, text in zip(places, pair, strict=True):
            raw = text if isinstance(text, bytes) else text.encode()
            place.append(struct.pack(f"{order}II", len(raw), start + len(texts)))
            texts += raw + b"\0"
    head = (0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    return struct.pack(f"{order}7I", *head) + b"".join(places[0]) + b"".join(places[1]) + texts


@pytest.mark.parametrize("order", ["<", ">"])
def test_compiled_catalogues_give_the_same_pairs(read, order):
    header = "Content-Type: text/plain; charset=UTF-8\n"
    made = [
        ("", header),
        ("a", "ä"),
        ("menu\x04b", "ö"),
        ("c\0cs", "d\0ds"),
        ("e", ""),
        ("f", "\n"),
    ]
    rows, faults = read(mo(made, order), "mo")
    assert rows == [("a", "ä", 2), ("b", "ö", 3), ("f", "\n", 6)]
    assert faults.left_out == {"header": 1, "plural": 1, "untranslated": 1}


def test_compiled_texts_that_are_not_utf8_are_faults(read):
    made = mo([("a", "b"), (b"\xe4", "c"), ("d", b"e\xff")])
    with pytest.raises(
        CorpusError, match=r"message 2, byte \d+ is not UTF-8 \(E4.*; message 3, byte"
    ):
        read(made, "mo")
    rows, faults = read(made, "mo", "reject")
    assert rows == [("a", "b", 1)]
    assert faults.rejected == {"encoding": 2}


def test_what_is_no_whole_compiled_catalogue_is_refused(read, monkeypatch):
    whole = mo([("a", "b"), ("c", "d")])
    overlapping = mo([("a" * 100, "b" * 100)]).replace(
        struct.pack("<II", 100, 145), struct.pack("<II", 200, 44)
    )
    for content, message in (
        (b"", "does not begin as one"),
        (CATALOGUE.encode(), "does not begin as one"),
        (whole[:20], "does not begin as one"),
        (whole[:40], "ends in the middle"),
        (whole[:-5], "reach past its end"),
        (overlapping, "texts that overlap"),
        (mo([("", "Content-Type: text/plain; charset=KOI8-R\n")]), "says that it is in KOI8-R"),
    ):
        with pytest.raises(CorpusError, match=message):
            read(content, "mo")
    monkeypatch.setattr(gettext, "MAX_MO_BYTES", 50)
    with pytest.raises(CorpusError, match="must have at most 50 bytes as an MO file"):
        read(whole, "mo")
