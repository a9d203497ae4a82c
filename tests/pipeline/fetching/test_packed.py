import bz2
import errno
import gzip
import io
import lzma
import struct
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import CorpusError, TradukoError
from pipeline.fetching import packed
from pipeline.fetching.packed import open_unpacked, packing

TEXT = b"".join(b"The clock strikes %d.\n" % number for number in range(300))


def zstd(data):
    return pa.Codec("zstd").compress(data).to_pybytes()


PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}
by_kind = pytest.mark.parametrize("kind", PACK)


@pytest.fixture
def unpacked(tmp_path):
    def read(content, name="corpus.txt", block_bytes=1000):
        (tmp_path / name).write_bytes(content)
        with open_unpacked(tmp_path / name) as file:
            blocks = list(iter(lambda: file.read(block_bytes), b""))
        assert all(len(block) == block_bytes for block in blocks[:-1])
        return b"".join(blocks)

    return read


@by_kind
@pytest.mark.parametrize("name", ["corpus.txt", "corpus.gz", "corpus.zst"])
def test_packing_is_told_by_content_not_by_name(unpacked, kind, name):
    assert packing(PACK[kind](TEXT)) == kind
    assert unpacked(PACK[kind](TEXT), name) == TEXT
    assert unpacked(TEXT, name) == TEXT


@by_kind
def test_all_streams_of_a_file_are_read(unpacked, kind):
    parts = [TEXT, b"", b"more\n", TEXT, b""]
    assert unpacked(b"".join(map(PACK[kind], parts))) == b"".join(parts)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz"])
@pytest.mark.parametrize("padding", [1, 1000, 600_000])
def test_zeros_after_a_stream_are_padding(unpacked, kind, padding):
    assert unpacked(PACK[kind](TEXT) + b"\0" * padding) == TEXT


def test_zstd_frames_without_data_are_skipped(unpacked):
    frame = b"\x5f\x2a\x4d\x18" + struct.pack("<I", 5) + b"notes"
    assert unpacked(frame + zstd(TEXT) + frame + zstd(TEXT)) == TEXT * 2


@by_kind
def test_a_file_that_is_cut_anywhere_is_refused_in_the_same_words(unpacked, kind):
    whole = PACK[kind](TEXT)
    for content in (whole, whole + PACK[kind](b"more")):
        first = 10 if content is whole else len(whole) + 1
        for end in range(first, len(content)):
            with pytest.raises(CorpusError) as error:
                unpacked(content[:end])
            assert "corpus.txt` must be a whole " + kind in str(error.value)
            if end > first + 10:  # enough of it to know a stream by
                assert str(error.value).endswith(
                    f"corpus.txt` must be a whole {kind} file, but ends in the middle. "
                    "Copy or download it again."
                ), (end, len(content))


@by_kind
@pytest.mark.parametrize("more", [b"more", b"x" * 1000])
def test_what_follows_and_is_no_stream_is_damage(unpacked, kind, more):
    with pytest.raises(CorpusError, match=rf"must be a whole {kind} file, but"):
        unpacked(PACK[kind](TEXT) + more)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz"])
def test_a_damaged_second_stream_is_no_end(unpacked, kind):
    second = bytearray(PACK[kind](TEXT))
    second[1] ^= 1
    with pytest.raises(CorpusError, match="is damaged"):
        unpacked(PACK[kind](TEXT) + second)


@by_kind
@given(data=st.data())
def test_a_changed_byte_gives_the_same_text_or_a_corpus_error(kind, data, tmp_path_factory):
    content = bytearray(PACK[kind](TEXT))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("changed") / "corpus"
    path.write_bytes(content)
    try:
        with open_unpacked(path) as file:
            text = file.read()
    except CorpusError:
        return
    # Where the magic is hurt, the file is plain; this zstd carries no checksum.
    assert text == TEXT or packing(content) in (None, "zstd")


@by_kind
def test_a_bomb_is_unpacked_block_by_block(tmp_path, kind):
    path = tmp_path / "bomb"
    path.write_bytes(PACK[kind](b"\0" * 2**26))
    tracemalloc.start()
    try:
        with open_unpacked(path) as file:
            size = sum(map(len, iter(lambda: file.read(2**16), b"")))
            assert file.num_packed_bytes == path.stat().st_size
        assert size == 2**26
        assert tracemalloc.get_traced_memory()[1] < 2**24, "of it 8 MiB are xz's window"
    finally:
        tracemalloc.stop()


def test_an_xz_file_may_not_ask_for_any_memory(unpacked, monkeypatch):
    monkeypatch.setattr(packed, "MAX_XZ_MEMORY_BYTES", 2**20)
    with pytest.raises(CorpusError, match=r"xz file, but is damaged \(Memory usage limit exceeded"):
        unpacked(lzma.compress(TEXT, preset=6))


@by_kind
def test_a_failing_disk_is_not_the_files_fault(tmp_path, kind):
    class Failing(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "corpus").write_bytes(PACK[kind](TEXT))
    file = open_unpacked(tmp_path / "corpus")
    file._inner = packed._OPENERS[kind](io.BufferedReader(Failing()))
    with pytest.raises(TradukoError, match=r"could not be read: Input/output error\. Try") as error:
        file.read(10)
    assert not isinstance(error.value, CorpusError)
    file.close()


def test_messages_use_the_name_that_the_user_knows(tmp_path):
    (tmp_path / "work").write_bytes(gzip.compress(TEXT)[:-1])
    with (
        open_unpacked(tmp_path / "work", "https://host/corpus.gz") as file,
        pytest.raises(CorpusError, match=r"`https://host/corpus\.gz` must be a whole gzip file"),
    ):
        file.read()
