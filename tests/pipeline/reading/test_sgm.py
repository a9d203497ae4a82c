"""SGM: documents of segments, aligned by document and number, or refused."""

import gzip

import pytest

from pipeline.errors import CorpusError
from pipeline.reading import lines as lines_module
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_files
from pipeline.reading.lines import MAX_LINE_BYTES
from pipeline.sources import Layout


@pytest.fixture
def read(tmp_path):
    def read(src, tgt, policy="stop"):
        paths = tmp_path / "src.sgm", tmp_path / "ref.sgm"
        for path, content in zip(paths, (src, tgt), strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        faults = Faults(policy)
        layout = Layout(format="sgm", on_bad_rows=policy)
        batches = read_files(paths, layout, faults=faults, batch_rows=2)
        return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], faults

    return read


def sgm(*documents):
    return "".join(
        f'<doc sysid="x" docid="d{number}">'
        + "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(document, 1))
        + "</doc>"
        for number, document in enumerate(documents)
    )


def test_published_test_sets_equal_their_plain_text_but_for_spacing(shared_data):
    wmt = shared_data / "wmt"
    files = [
        wmt / "sgm" / name
        for name in ("newstest2014-deen-ref.en.sgm.gz", "newstest2014-deen-src.de.sgm.gz")
    ]
    [batch] = read_files(files, Layout(format="sgm"))
    assert batch.num_rows == 3003
    for side, name in (("src", "en"), ("tgt", "de")):
        packed = (wmt / "newstest" / f"newstest2014.en-de.{name}.gz").read_bytes()
        plain = gzip.decompress(packed).decode().split("\n")[:-1]
        found = [" ".join(text.split()) for text in batch[side].to_pylist()]
        assert found == [" ".join(text.split()) for text in plain]


def test_the_hostile_entities_are_decoded_once_and_bare_ampersands_stay(shared_data):
    folder = shared_data / "hostile" / "files" / "74_sgm_entities"
    files = [folder / "test-src.en.sgm", folder / "test-ref.de.sgm"]
    [batch] = read_files(files, Layout(format="sgm"))
    assert batch["src"][2].as_py() == 'Salt & pepper cost < 5 "marks".'
    assert batch["src"][4].as_py() == "R&D and AT & T are bare ampersands."
    assert batch["tgt"][2].as_py() == "Salz & Pfeffer kosten < 5 „Mark“."
    assert batch["tgt"][4].as_py() == "F&E und AT & T sind bloße Et-Zeichen."


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("&amp;amp;", "&amp;"),
        ("&notit; &copy &lt", "&notit; &copy &lt"),
        ("&#228;&#xE4;", "ää"),
        ("&#0;&#xD800;", "&#0;&#xD800;"),
        ("a < b > c", "a < b > c"),
        ("<hl>a</hl>", "<hl>a</hl>"),
        (" a  b ", "a  b"),
        ("a \n\t b", "a b"),
        ("", ""),
    ],
)
def test_text_is_what_stands_between_the_tags(read, text, decoded):
    assert read(sgm([text]), sgm(["x"]))[0] == [(decoded, "x", 1)]


@pytest.mark.parametrize("block_bytes", [7, 2**20])
def test_tags_may_be_written_in_any_way(read, monkeypatch, block_bytes):
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", block_bytes)
    src = "\ufeff<?xml version='1.0'?><MTEVAL><url>u</url><DOC docid=d0><SEG id=1>a</SEG><seg\nid='2'>b</seg ></Doc>"
    rows, _ = read(src, sgm(["1", "2"]))
    assert rows == [("a", "1", 1), ("b", "2", 2)]


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (sgm("ab", "cd"), sgm("ab", "c"), r"document `d1` \(2\) has 2 in `.*src.sgm` and 1 in"),
        (sgm("ab", "cd"), sgm("a", "cd"), r"document `d0` \(1\) has 2 in `.*src.sgm` and 1 in"),
        (sgm("a", "cd"), sgm("abcd", "cd"), r"document `d0` \(1\) has 1 in `.*src.sgm` and 4 in"),
        (sgm("a"), sgm("a", "b"), r"document `d1` \(2\) has 0 in `.*src.sgm` and 1 in"),
        (sgm("a", "", "b"), sgm("a", "b"), r"document `d1` \(2\) has 0 in `.*src.sgm` and 1 in"),
        (sgm("a", "b"), sgm("a", "b").replace("d1", "d2"), r"document 2 is `d1` in .* and `d2` in"),
        (
            sgm("ab"),
            sgm("ab").replace("</seg>", "", 1),
            r"close each segment .* segment 1 of document",
        ),
        (sgm("ab"), sgm("ab")[:-10], r"does not close segment 2 of document `d0`"),
        ("a\nb\n", "a\nb\n", r"must hold segments \(`<seg>` in `<doc>`\), but hold none"),
        ("", "", r"but hold none"),
        (sgm("a").encode("utf-16"), sgm("a"), "looks like UTF-16"),
    ],
)
def test_what_does_not_align_is_refused_by_document(read, src, tgt, message):
    for policy in ("stop", "reject"):
        with pytest.raises(CorpusError, match=message):
            read(src, tgt, policy)


def test_segments_that_are_not_utf8_are_faults(read):
    src = sgm(["a", "X", "c"]).encode().replace(b"X", b"\xe4")
    byte = src.index(b"\xe4")
    with pytest.raises(CorpusError, match=rf"src.sgm`: segment 2, byte {byte} is not UTF-8 \(E4"):
        read(src, sgm("123"))
    rows, faults = read(src, sgm("123"), "reject")
    assert rows == [("a", "1", 1), ("c", "3", 3)]
    assert faults.rejected == {"encoding": 1}


@pytest.mark.parametrize("made", ["<seg>", "<seg ", "<doc", "</seg>x"])
def test_no_file_takes_long_or_fills_the_memory(read, made):
    with pytest.raises(CorpusError):
        read(made * 10**6, made * 10**6)
    with pytest.raises(CorpusError, match="segments of at most 4,194,304 bytes"):
        read("<seg>" + "x" * (2 * MAX_LINE_BYTES), sgm("a"))


def test_white_space_in_a_documents_name_counts_and_shows_as_one_space(read):
    document = '<doc docid="a{}b"><seg id="1">text</seg></doc>'
    assert len(read(document.format("\n"), document.format(" "))[0]) == 1
    with pytest.raises(CorpusError, match=r"document 1 is `a b` in .* and `axb` in") as error:
        read(document.format("\n"), document.format("x"))
    assert "\n" not in str(error.value)
