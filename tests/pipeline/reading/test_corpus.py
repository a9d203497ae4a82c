import gzip
import lzma
import os
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CorpusError
from pipeline.reading import lines as lines_module
from pipeline.reading.corpus import read_pairs, read_ted, two_files
from pipeline.reading.faults import Faults
from pipeline.reading.lines import MAX_LINE_BYTES


@pytest.fixture
def write(tmp_path):
    def write(src, tgt):
        paths = tmp_path / "train.en", tmp_path / "train.de"
        for path, content in zip(paths, (src, tgt), strict=True):
            path.write_bytes(content)
        return paths

    return write


@pytest.fixture
def small_blocks(monkeypatch):
    """Every property must hold across the borders of blocks, and of what is read ahead."""
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(lines_module, "_PENDING_BYTES", 64)


def rows(src, tgt, **options):
    batches = list(read_pairs(src, tgt, **options))
    table = pa.Table.from_batches(batches)
    assert table.schema.types == [pa.string(), pa.string(), pa.int64()]
    assert table.column_names == ["src", "tgt", "line"]
    assert table["line"].to_pylist() == list(range(1, table.num_rows + 1))
    table.validate(full=True)
    return list(zip(table["src"].to_pylist(), table["tgt"].to_pylist(), strict=True))


def lines_of(content):
    """What the lines of a file are, said in the plainest way."""
    *lines, last = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [line.removesuffix(b"\r") for line in lines]
    return [line.decode() for line in ([*lines, last] if last else lines)]


@pytest.mark.parametrize(
    "end", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r", "\0"]
)
def test_only_a_newline_ends_a_line(write, end):
    src, tgt = write(f"a{end}b{end}\nc\n".encode(), b"1\n2\n")
    assert rows(src, tgt) == [(f"a{end}b{end}".removesuffix("\r"), "1"), ("c", "2")]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\r\n\r\nb", ["a", "", "b"]),
        (b"a\r\r\nb\n\n", ["a\r", "b", ""]),
        (b"\n", [""]),
        (b"a\n\r", ["a", "\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\na", ["", "a"]),
    ],
)
def test_line_ends_and_marks_are_no_text(write, content, lines, small_blocks):
    src, tgt = write(content, b"x\n" * len(lines))
    assert [row[0] for row in rows(src, tgt)] == lines


text = st.lists(
    st.one_of(
        st.sampled_from(["\n", "\n", "\r\n", "\r", "\u2028", "\x85", " "]), st.text(max_size=9)
    )
).map("".join)


@given(
    data=st.data(), lines=st.integers(1, 60), batch_rows=st.integers(1, 70), packed=st.booleans()
)
def test_pairs_never_shift(data, lines, batch_rows, packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    line = st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=30)
    sides = []
    for name in ("src", "tgt"):
        content = data.draw(st.lists(line, min_size=lines, max_size=lines))
        encoded = "".join(f"{row}\n" for row in content).encode()
        (folder / name).write_bytes(gzip.compress(encoded) if packed else encoded)
        sides.append(lines_of(encoded))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "_BLOCK_BYTES", 32)
        patch.setattr(lines_module, "_PENDING_BYTES", 128)
        read = rows(folder / "src", folder / "tgt", batch_rows=batch_rows)
    assert read == list(zip(*sides, strict=True))


@given(
    src=st.one_of(st.binary(), text.map(str.encode)),
    tgt=st.one_of(st.binary(), text.map(str.encode)),
)
def test_any_bytes_give_rows_or_a_corpus_error(src, tgt, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "src").write_bytes(src)
    (folder / "tgt").write_bytes(tgt)
    try:
        read = rows(folder / "src", folder / "tgt")
    except CorpusError:
        return
    assert [row[0] for row in read] == lines_of(src)
    assert [row[1] for row in read] == lines_of(tgt)


def test_batches_are_full_while_lines_are_short(write):
    src, tgt = write(b"a\n" * 100_000, b"long enough for several blocks\n" * 100_000)
    assert [b.num_rows for b in read_pairs(src, tgt, 30_000)] == [30_000, 30_000, 30_000, 10_000]


def test_batches_are_short_where_lines_are_long(write):
    line = b"x" * 2**20 + b"\n"
    src, tgt = write(line * 80, b"y\n" * 80)
    batches = list(read_pairs(src, tgt))
    assert max(batch.nbytes for batch in batches) < 40 * 2**20
    assert sum(batch.num_rows for batch in batches) == 80


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_may_have_so_many_bytes_and_no_more(write, packed):
    for extra, is_read in ((0, True), (1, False)):
        for end in (b"\n", b""):
            content = b"a\n" + b"x" * (MAX_LINE_BYTES + extra) + end
            src, tgt = write(gzip.compress(content, 1) if packed else content, b"1\n2\n")
            if is_read:
                assert len(rows(src, tgt)[1][0]) == MAX_LINE_BYTES
            else:
                with pytest.raises(CorpusError, match=r"line 2: .* at most 4,194,304 bytes"):
                    rows(src, tgt)


@pytest.mark.parametrize("name", ["train.en", "train.en.gz"])
def test_gzip_is_told_by_content_not_by_name(tmp_path, name):
    for content in (b"a\nb\n", gzip.compress(b"a\nb\n")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / "train.de").write_bytes(b"1\n2\n")
        assert rows(tmp_path / name, tmp_path / "train.de") == [("a", "1"), ("b", "2")]


def test_all_members_of_a_gzip_file_are_read_and_padding_is_not(write):
    members = b"".join(gzip.compress(part) for part in (b"a\nb", b"", b"c\n"))
    src, tgt = write(members + b"\0" * 1000, b"1\n2\n")
    assert rows(src, tgt) == [("a", "1"), ("bc", "2")]


whole = gzip.compress(b"The clock strikes seven.\n" * 1000, mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (whole[:-20], "ends in the middle"),
        (whole[:8], "ends in the middle"),
        (whole + b"more", "is damaged"),
        (whole[:-8] + b"\0" * 8, "is damaged"),
        (whole[:20] + b"\xff" * 20 + whole[40:], "is damaged"),
        (gzip.compress(whole, mtime=0), "looks like a file packed twice (gzip inside)"),
        (gzip.compress("a".encode("utf-16"), mtime=0), "looks like UTF-16"),
        ("The clock".encode("utf-16"), "looks like UTF-16. Convert it first"),
        (b"\xfe\xff" + "The clock".encode("utf-16-be"), "looks like UTF-16"),
        ("The clock".encode("utf-16-le"), "looks like UTF-16 without a byte order mark"),
        ("The clock".encode("utf-16-be"), "looks like UTF-16 without a byte order mark"),
        ("The clock".encode("utf-32"), "looks like UTF-32"),
        (b"PK\x03\x04" + b"x" * 100, "looks like a zip archive"),
        (gzip.compress(lzma.compress(b"a"), mtime=0), "looks like a file packed twice (xz inside)"),
        (lzma.compress(b"a" * 1000)[:-20], "must be a whole xz file, but ends in the middle"),
        (b"train.en".ljust(257, b"\0") + b"ustar\0", "looks like a tar archive"),
        (b"", "but `{src}` has 0 lines and `{tgt}` has 1000."),
    ],
)
def test_what_is_not_text_is_named(write, content, message):
    src, tgt = write(content, b"Die Uhr\n" * 1000)
    with pytest.raises(CorpusError, match=re.escape(message.format(src=src, tgt=tgt))) as error:
        rows(src, tgt)
    assert str(src) in str(error.value)


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (b"T\xfcr", r"line 3, byte 7 is not UTF-8 \(FC: invalid start byte\)"),
        (b"T\xe4r", r"line 3, byte 7 is not UTF-8 \(E4: invalid continuation byte\)"),
        (b"\xed\xa0\xbd\xed\xb8\x80", r"line 3, byte 6 is not UTF-8 \(ED: invalid cont"),
        (b"\xc0\xaf", r"line 3, byte 6 is not UTF-8 \(C0: invalid start byte\)"),
        (b"\xf4\x90\x80\x80", r"line 3, byte 6 is not UTF-8 \(F4: invalid continuation byte\)"),
        (b"T\xc3", r"line 3, byte 7 is not UTF-8 \(C3: unexpected end of data\)"),
    ],
)
@pytest.mark.parametrize("end", [b"", b"\n", b"\nmore\n"])
def test_what_is_not_utf8_is_named_by_line_and_byte(write, bad, found, end, small_blocks):
    src, tgt = write(b"a\r\n\xc3\xbc\n" + bad + end, b"1\n" * (3 + (end > b"\n")))
    with pytest.raises(CorpusError, match=rf"but 1 is not\. `{src}`: {found}.*\. Mend.*iconv"):
        rows(src, tgt)


def test_faults_of_both_files_are_named_together(write):
    src, tgt = write(b"a\n\xff\nc\n\xfe\n", b"1\n2\n\xfd\n4\n")
    with pytest.raises(CorpusError, match=r"but 3 are not\.") as error:
        rows(src, tgt)
    assert re.findall(r"line (\d), byte (\d+)", str(error.value)) == [
        ("3", "4"), ("2", "2"), ("4", "6"),
    ]  # fmt: skip
    assert str(error.value).index(str(tgt)) < str(error.value).index(str(src)), "by name of file"


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rejected_lines_take_their_partner_with_them(write, batch_rows, small_blocks):
    src, tgt = write(b"a\n\xff\nc\nd\n\xfe", b"1\n2\n\xfd\n4\n\xfc\n")
    told = []
    faults = Faults("reject", told.append)
    batches = list(read_pairs(src, tgt, batch_rows, faults=faults))
    table = pa.Table.from_batches(batches)
    assert table.to_pydict() == {"src": ["a", "d"], "tgt": ["1", "4"], "line": [1, 4]}
    assert faults.rejected == {"encoding": 3}
    assert [(fault.file, fault.line, fault.byte) for fault in told] == [
        (str(src), 2, 2),
        (str(tgt), 3, 4),
        (str(src), 5, 8),
    ]


@given(data=st.data(), rows_in=st.integers(1, 40), batch_rows=st.integers(1, 50))
def test_of_any_lines_exactly_the_faulty_pairs_are_rejected(
    data, rows_in, batch_rows, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("reject")
    line = st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b""))
    sides = [data.draw(st.lists(line, min_size=rows_in, max_size=rows_in)) for _ in range(2)]
    for name, lines in zip(("src", "tgt"), sides, strict=True):
        (folder / name).write_bytes(b"x\n" + b"".join(raw + b"\n" for raw in lines))
    good = [
        (number, *(raw.decode().removesuffix("\r") for raw in pair))
        for number, pair in enumerate(zip(*sides, strict=True), start=2)
        if all(is_utf8(raw) for raw in pair)
    ]
    faults = Faults("reject")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines_module, "_BLOCK_BYTES", 32)
        batches = list(read_pairs(folder / "src", folder / "tgt", batch_rows, faults=faults))
    read = [row for batch in batches for row in zip(*map(pa.Array.to_pylist, batch), strict=True)]
    assert [(line, src, tgt) for src, tgt, line in read] == [(1, "x", "x"), *good]
    assert len(read) + faults.rejected.total() == rows_in + 1


def is_utf8(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (b"a\nb\nc", b"1\n2\n", "`{src}` has 3 lines and `{tgt}` has 2."),
        (b"a\n", b"1\n2\n3\n4\n", "`{src}` has 1 lines and `{tgt}` has 4."),
        (b"a\n", b"1\n \n", "The extra line is blank: remove from the end of `{tgt}`"),
        (b"a\n\n\t\n", b"1\n", "The 2 extra lines are blank: remove from the end of `{src}`"),
        (b"a\rb\rc\r", b"1\n2\n3\n", "`{src}` has 3 carriage returns (CR) without a newline"),
        (b"", b"", "`{src}` and `{tgt}` are empty: there are no pairs"),
        (b"\xef\xbb\xbf", b"", "are empty: there are no pairs"),
    ],
)
@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_unequal_counts_are_both_named(write, src, tgt, message, batch_rows, small_blocks):
    src, tgt = write(src, tgt)
    with pytest.raises(CorpusError, match=re.escape(message.format(src=src, tgt=tgt))):
        list(read_pairs(src, tgt, batch_rows))


def test_extra_lines_with_text_are_not_called_blank(write):
    src, tgt = write(b"a\n\nb\n", b"1\n")
    with pytest.raises(CorpusError) as error:
        list(read_pairs(src, tgt))
    assert "blank" not in str(error.value)


def test_one_file_cannot_be_both_sides(write, tmp_path):
    src, _ = write(b"a\n", b"1\n")
    (tmp_path / "link").symlink_to(src)
    for same in (src, tmp_path / "." / "train.en", tmp_path / "link"):
        with pytest.raises(CorpusError, match="is given as both source and target"):
            read_pairs(src, same)


def test_paths_are_checked_before_anything_is_read(write, tmp_path):
    src, _ = write(b"a\n", b"1\n")
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path, "must be a file, but is a folder"),
        (tmp_path / "nothing", "does not exist"),
        (tmp_path / "pipe", "must be a regular file"),
    ):
        with pytest.raises(CorpusError, match=f"`{path}` {message}"):
            read_pairs(src, path)


def test_an_unreadable_file_is_named(write, monkeypatch):
    src, tgt = write(b"a\n", b"1\n")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match=f"`{src}` cannot be opened: Permission denied"):
        read_pairs(src, tgt)


def test_where_files_part_is_said_where_it_is_clear(write, shared_data):
    sides = [
        gzip.decompress((shared_data / "multi30k" / f"train.{side}.gz").read_bytes())
        for side in ("en", "de")
    ]
    lines = [side.split(b"\n")[:6000] for side in sides]
    del lines[1][3333]
    src, tgt = write(*(b"\n".join(side) + b"\n" for side in lines))
    with pytest.raises(
        CorpusError, match=r"has 6000 lines and .* has 5999\. They seem to"
    ) as error:
        rows(src, tgt)
    found = int(
        re.search(r"part at about line ([\d,]+): look", str(error.value))[1].replace(",", "")
    )
    assert abs(found - 3333) <= 256
    del lines[1][-1]
    lines[1].insert(3333, sides[1].split(b"\n")[3333])
    src, tgt = write(*(b"\n".join(side) + b"\n" for side in lines))
    with pytest.raises(CorpusError) as error:
        rows(src, tgt)
    assert "They seem" not in str(error.value), "they only end at different lines"


TALK_EN = """<url>http://example.org/1</url>
<keywords>one, two</keywords>
<speaker>Some One</speaker>
<reviewer href="http://example.org/r">R</reviewer>
<doc docid="1" genre="lectures">
<title>A title: of a talk</title>
 <description>What it is about.</description>
A sentence.
A < sentence <url> with tags.
</doc>
"""
TALK_DE = TALK_EN.replace("A sentence.", "Ein Satz.").replace("A title", "Ein Titel")


def talk(src, tgt, policy="reject"):
    faults = Faults(policy)
    batches = list(faults.sift(read_ted(*two_files(src, tgt))))
    return [row for b in batches for row in zip(*map(pa.Array.to_pylist, b), strict=True)], faults


def test_metadata_of_talks_is_left_out_and_lines_keep_their_numbers(write):
    read, faults = talk(*write(TALK_EN.encode(), TALK_DE.encode()), "stop")
    assert read == [
        ("A sentence.", "Ein Satz.", 8),
        ("A < sentence <url> with tags.", "A < sentence <url> with tags.", 9),
    ]
    assert faults.left_out == {"metadata": 8}


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (
            "<url>a</url>",
            "Ein Satz.",
            r"train.en`: line 2 is metadata \(<url>\), but not on the other",
        ),
        (
            "A sentence.",
            "</doc>",
            r"train.de`: line 2 is metadata \(</doc>\), but not on the other",
        ),
        ("<url>a</url>", "<title>a</title>", r"train.en`: line 2 is metadata \(<url>\), but not"),
    ],
)
def test_metadata_on_one_side_only_is_a_fault(write, src, tgt, message):
    paths = write(f"a\n{src}\nc\n".encode(), f"1\n{tgt}\n3\n".encode())
    with pytest.raises(CorpusError, match=message):
        talk(*paths, "stop")
    read, faults = talk(*paths)
    assert read == [("a", "1", 1), ("c", "3", 3)]
    assert faults.rejected == {"metadata": 1}


def test_messages_use_the_names_that_the_user_knows(write):
    src, tgt = write(b"a\n\xff\n", b"1\n2\n")
    with pytest.raises(CorpusError, match=r"`my\.en`: line 2, byte 2 is not UTF-8"):
        list(read_pairs(src, tgt, names=("my.en", "my.de")))
    tgt.unlink()
    with pytest.raises(CorpusError, match=r"`my\.de` does not exist"):
        read_pairs(src, tgt, names=("my.en", "my.de"))
