"""One file's lines: the same however it is cut, each fault at its place, nothing held whole."""

import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import CorpusError
from pipeline.reading import lines as lines_module
from pipeline.reading.lines import checked, read_lines, utf8_fault


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "corpus"
        path.write_bytes(content)
        return path

    return write


@settings(max_examples=60)
@given(
    content=st.lists(
        st.one_of(
            st.sampled_from([b"\n", b"\r\n", b"\xc3\xa4", b"\xff", b"\xc3"]), st.binary(max_size=5)
        )
    ).map(b"".join),
    batch_rows=st.integers(1, 5),
    block_bytes=st.integers(1, 20),
)
def test_lines_and_faults_do_not_depend_on_how_a_file_is_cut(
    tmp_path_factory, content, batch_rows, block_bytes
):
    path = tmp_path_factory.mktemp("cut") / "corpus"
    path.write_bytes(b"x" * 600 + b"\n" + content)  # no signature of other files at its beginning

    def read(rows, size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lines_module, "_BLOCK_BYTES", size)
            batches = list(read_lines(checked(path), rows))
        assert all(0 < len(batch.texts) <= rows for batch in batches)
        for batch in batches:
            batch.texts.validate(full=True)
            last = batch.first + len(batch.texts) - 1
            assert all(batch.first <= fault.line <= last for fault in batch.faults)
        return (
            [text for batch in batches for text in batch.texts.to_pylist()],
            [fault for batch in batches for fault in batch.faults],
        )

    texts, faults = read(10_000, 2**20)
    assert read(batch_rows, max(block_bytes, 600)) == (texts, faults)
    raw = path.read_bytes()
    for fault in faults:
        line = raw.split(b"\n")[fault.line - 1]
        assert utf8_fault(line, str(path), fault.line, fault.byte) is not None
        assert texts[fault.line - 1] == ""
        assert line.startswith(fault.raw)
        found = re.match(r"is not UTF-8 \(([0-9A-F]{2})", fault.what)
        assert raw[fault.byte] == int(found[1], 16)


def test_a_file_without_a_line_is_no_corpus(write):
    for content in (b"", b"\xef\xbb\xbf", gzip.compress(b"")):
        with pytest.raises(CorpusError, match="is empty: there are no pairs"):
            list(read_lines(checked(write(content))))


def test_files_have_the_names_that_the_user_knows(write):
    path = write(b"PK\x03\x04")
    assert checked(path).name == str(path)
    with pytest.raises(
        CorpusError, match=r"`my\.tsv` must be UTF-8 text, .* looks like a zip archive"
    ):
        next(read_lines(checked(path, "my.tsv")))
    path.unlink()
    with pytest.raises(CorpusError, match=r"`my\.tsv` does not exist"):
        checked(path, "my.tsv")


def test_a_whole_file_in_another_encoding_is_read_to_its_end(write):
    path = write("Tür\nTor\nTür".encode("latin-1") * 1000)
    [batch] = read_lines(checked(path))
    assert len(batch.texts) == 2001
    assert len(batch.faults) == 1001
    assert batch.texts[1].as_py() == "Tor"
