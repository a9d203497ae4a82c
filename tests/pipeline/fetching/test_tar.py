import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CorpusError
from pipeline.fetching.tar import is_tar, read_tar

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


class Stream(io.BytesIO):
    name = "corpus.tar"


def members(content):
    """Every member with its data, read; each is asked for after the one before is done with."""
    return [
        (entry.name, entry.kind, b"".join(entry.blocks())) for entry in read_tar(Stream(content))
    ]


def tar(files, form="pax", **fields):
    """An archive made by `tarfile`, as an independent witness."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=FORMATS[form]) as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=300
).filter(lambda name: name.strip("/") == name)


@given(
    files=st.lists(st.tuples(names, st.binary(max_size=2000)), max_size=6),
    form=st.sampled_from(["gnu", "pax"]),
)
def test_members_are_those_that_were_written(files, form):
    expected = [(name, "file", data) for name, data in files]
    assert members(tar(files, form)) == expected
    skipped = [entry.name for entry in read_tar(Stream(tar(files, form)))]
    assert skipped == [name for name, _ in files], "data that nobody reads is skipped"


@pytest.mark.parametrize("length", [99, 100, 101, 150, 190])
@pytest.mark.parametrize("form", FORMATS)
def test_long_names_are_read_in_every_format(form, length):
    name = "folder/" * 13 + "x" * (length - 7 * 13)
    assert members(tar([(name, b"a")], form)) == [(name, "file", b"a")]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"type": tarfile.DIRTYPE}, "folder"),
        ({"type": tarfile.SYMTYPE, "linkname": "a"}, "symbolic link"),
        ({"type": tarfile.LNKTYPE, "linkname": "a"}, "hard link"),
        ({"type": tarfile.CHRTYPE}, "device"),
        ({"type": tarfile.FIFOTYPE}, "pipe"),
        ({"type": b"Z"}, "special file"),
        ({"type": tarfile.CONTTYPE}, "file"),
        ({"type": tarfile.AREGTYPE}, "file"),
        ({"pax_headers": {"GNU.sparse.major": "1"}}, "sparse file"),
    ],
)
def test_what_is_no_file_is_told(fields, kind):
    assert [entry.kind for entry in read_tar(Stream(tar([("x", b"")], **fields)))] == [kind]


def test_links_say_where_they_lead():
    long = "y" * 300
    for target in ("a", long):
        made = tar([("x", b"")], type=tarfile.SYMTYPE, linkname=target)
        assert [entry.link for entry in read_tar(Stream(made))] == [target]


def test_a_file_larger_than_octal_digits_can_say_is_read():
    """Its size in GNU's binary form, here of a small one."""
    made = bytearray(tar([("x", b"data")], "gnu"))
    made[124:136] = b"\x80" + (4).to_bytes(11)
    assert members(resealed(made)) == [("x", "file", b"data")]


def resealed(content):
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    return bytes(content)


whole = tar([("a.en", b"x" * 700), ("a.de", b"y" * 10)])


def test_an_archive_that_is_cut_anywhere_is_refused():
    end_mark = whole.rstrip(b"\0")
    end_mark = len(end_mark) + -len(end_mark) % 512
    for end in range(end_mark + 511):
        with pytest.raises(
            CorpusError, match=r"`corpus\.tar` must be a whole tar archive, but ends"
        ):
            members(whole[:end])
    assert members(whole[: end_mark + 512]) == members(whole), "all members are there"


@pytest.mark.parametrize("start", [0, 512 * 3])
def test_a_changed_header_is_no_end(start):
    for place in (0, 100, 124, 148, 156, 200, 400):
        changed = bytearray(whole)
        changed[start + place] ^= 0x41
        with pytest.raises(CorpusError, match="a header's checksum is wrong"):
            members(bytes(changed))


def test_a_number_that_is_none_is_refused():
    for size in (b"\xff" + b"\xff" * 11, b"12x45678901\0", b"-0000000001\0"):
        made = bytearray(whole)
        made[124:136] = size
        with pytest.raises(CorpusError, match="a size is no number"):
            members(resealed(made))


@pytest.mark.parametrize(
    "record",
    [b"0 path=x\n", b"99 path=x\n", b"x path=x\n", b"10 path=xy", b"9 path x\n", b"\xb2 path=x\n"],
)
def test_attributes_must_be_well_formed(record):
    made = bytearray(tar([("a", record), ("b", b"1")]))
    made[156:157] = b"x"
    with pytest.raises(CorpusError, match="an extended header is not well formed"):
        members(resealed(made))


def test_headers_of_any_size_are_not_held_in_memory():
    made = bytearray(tar([("a", b"1" * (2**20 + 1))]))
    for kind in (b"L", b"K", b"x", b"g"):
        made[156:157] = kind
        with pytest.raises(CorpusError, match="a header has more than 1,048,576 bytes"):
            members(resealed(made))


def test_many_headers_in_a_row_are_no_recursion():
    made = bytearray(tar([("a", b"")])[:512])
    made[156:157] = b"x"
    assert members(resealed(made) * 5000 + whole) == members(whole)


@given(content=st.binary(max_size=3000))
def test_any_bytes_give_members_or_a_corpus_error(content):
    seal = resealed(bytearray(content.ljust(512, b"\0")))
    for attempt in (content, seal, whole[:1536] + seal):
        try:
            members(attempt)
        except CorpusError:
            continue
        assert bytes(512) in attempt, "an end mark"


def test_archives_are_known_by_their_first_block():
    assert is_tar(whole[:512])
    oldest = bytearray(whole[:512])
    oldest[257:265] = bytes(8)
    assert is_tar(resealed(oldest))
    assert not any(map(is_tar, (b"", bytes(512), b"The clock strikes.\n" * 40, whole[:200])))
