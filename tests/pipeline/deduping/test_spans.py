"""Rows are cut by their number alone, and each is in one span."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import tables
from pipeline.deduping.spans import read_span, spans_of


@pytest.fixture(scope="module")
def write(tmp_path_factory):
    """Files of so many rows, each of groups of so many; rows are numbered on."""

    def run(files, group_rows):
        folder, at, paths = tmp_path_factory.mktemp("spans"), 0, []
        for index, rows in enumerate(files):
            table = pa.table({"row": pa.array(range(at, at + rows), pa.int64())})
            paths.append(folder / f"{index}.parquet")
            pq.write_table(table, paths[-1], row_group_size=group_rows)
            at += rows
        return paths

    return run


def rows_of(span):
    return [row for batch in read_span(span) for row in batch["row"].to_pylist()]


@given(
    st.lists(st.integers(0, 9), max_size=5),
    st.integers(1, 4),
    st.integers(1, 8),
    st.integers(1, 5),
)
def test_spans_hold_each_row_once_in_order_and_are_of_equal_size(
    write, files, group_rows, span_rows, batch_rows
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BATCH_ROWS", batch_rows)
        spans = spans_of(write(files, group_rows), span_rows)
        assert [rows_of(span) for span in spans] == [
            list(range(start, min(start + span_rows, sum(files))))
            for start in range(0, sum(files), span_rows)
        ]
    assert [span.number for span in spans] == list(range(len(spans)))
    assert [(span.start, span.end) for span in spans] == [
        (start, min(start + span_rows, sum(files))) for start in range(0, sum(files), span_rows)
    ]


def test_a_span_reads_only_the_row_groups_that_it_needs(write, monkeypatch):
    [path] = write([1000], 10)
    groups = []
    read = pq.ParquetFile.iter_batches

    def spy(self, batch_size, row_groups):
        groups.extend(row_groups)
        return read(self, batch_size=batch_size, row_groups=row_groups)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    assert rows_of(spans_of([path], 25)[2]) == list(range(50, 75))
    assert groups == [5, 6, 7]
