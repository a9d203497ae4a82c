"""Parquet: columns of text by name, whatever their storage."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import CorpusError
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_files
from pipeline.reading.lines import MAX_LINE_BYTES
from pipeline.sources import Layout


@pytest.fixture
def write(tmp_path):
    def write(**columns):
        path = tmp_path / "corpus.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=2)
        return path

    return write


def read(path, columns=("src", "tgt"), policy="stop"):
    told = []
    faults = Faults(policy, told.append)
    layout = Layout(format="parquet", columns=columns, on_bad_rows=policy)
    batches = list(read_files([path], layout, faults=faults, batch_rows=3))
    for batch in batches:
        assert batch.schema.types == [pa.string(), pa.string(), pa.int64()]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()], told


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.large_string()),
    ],
)
def test_text_of_any_storage_is_read(write, kind):
    src, tgt = ["a", "", "a", "ü", "e"], ["1", "2", "3", "4", "5"]
    path = write(tgt=pa.array(tgt), n=pa.array(range(5)), src=pa.array(src, pa.string()).cast(kind))
    rows, _ = read(path)
    assert rows == list(zip(src, tgt, range(1, 6), strict=True))


def test_a_column_inside_another_is_named_with_a_dot(write):
    path = write(id=[1, 2], translation=[{"de": "x", "en": "a"}, {"de": "y", "en": "b"}])
    rows, _ = read(path, ("translation.en", "translation.de"))
    assert rows == [("a", "x", 1), ("b", "y", 2)]


def test_null_cells_are_faults(write):
    path = write(src=["a", None, "c", None], tgt=["1", "2", None, None])
    with pytest.raises(
        CorpusError, match=r"row 2 has no `src` \(null\); row 3 has no `tgt` \(null"
    ):
        read(path)
    rows, told = read(path, policy="reject")
    assert rows == [("a", "1", 1)]
    assert [fault.line for fault in told] == [2, 3, 4]


def test_a_null_around_a_column_is_a_fault(write):
    path = write(t=[{"a": "x", "b": "y"}, None])
    rows, told = read(path, ("t.a", "t.b"), "reject")
    assert rows == [("x", "y", 1)]
    assert [fault.kind for fault in told] == ["null"]


def test_texts_that_are_not_utf8_are_faults(write):
    raw = pa.array([b"a", b"\xe4x", b"\xed\xa0\xbd"], pa.binary())
    src = pa.StringArray.from_buffers(3, *raw.buffers()[1:])  # Parquet stores what it is given
    path = write(src=src, tgt=["1", "2", "3"])
    with pytest.raises(CorpusError, match=r"row 2 is not UTF-8 \(E4: invalid cont.*; row 3 is not"):
        read(path)
    rows, told = read(path, policy="reject")
    assert rows == [("a", "1", 1)]
    assert [(fault.line, fault.raw) for fault in told] == [(2, b"\xe4x"), (3, b"\xed\xa0\xbd")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("src", "en"), r"must have a column `en`, but has `src`, `tgt`, `n`, `s`\. Set `columns`"),
        (("src", "n"), r"must hold text in its column `n`, but that is int64\. Set `columns`"),
        (("src", "s"), r"must hold text in its column `s`, but that is struct"),
        (("src", "s.b"), r"must have a column `s\.b`"),
        (("src", "tgt.b"), r"must have a column `tgt\.b`"),
    ],
)
def test_columns_that_are_not_there_or_no_text_are_named(write, columns, message):
    path = write(src=["a"], tgt=["b"], n=[1], s=[{"a": "x"}])
    with pytest.raises(CorpusError, match=message):
        read(path, columns)


def test_a_text_may_be_only_so_long(write):
    path = write(src=["a", "x" * (MAX_LINE_BYTES + 1)], tgt=["1", "2"])
    with pytest.raises(CorpusError, match=r"at most 4,194,304 bytes in a text, but one of `src`"):
        read(path, policy="reject")


def test_what_is_no_whole_parquet_file_is_refused(write, tmp_path):
    path = write(src=["a"] * 50, tgt=["b"] * 50)
    whole = path.read_bytes()
    for content, message in (
        (b"", "does not begin as one"),
        (b"src\ttgt\n", "does not begin as one"),
        (b"PAR1", "is damaged"),
        (whole[:-9], "is damaged"),
        (whole[:200] + whole[260:], "is damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(CorpusError, match=message):
            read(path)


def test_a_table_without_rows_is_no_corpus(write):
    with pytest.raises(CorpusError, match=r"at least one pair, but none is left \(no rows\)"):
        read(write(src=pa.array([], pa.string()), tgt=pa.array([], pa.string())))


def test_a_columns_name_that_is_not_utf8_is_damage(write):
    path = write(src=["a"], tgt=["b"])
    path.write_bytes(path.read_bytes().replace(b"tgt", b"tg\xf4"))
    with pytest.raises(CorpusError, match="must be a whole Parquet file, but is damaged"):
        read(path)
