from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.tables import PAIRS, ParquetShards, RowsDigest, read_batches, rows_digest

SCHEMA = pa.schema([("text", pa.string()), ("ids", pa.list_(pa.uint16())), ("n", pa.int64())])
ROWS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.lists(st.integers(0, 65535), max_size=4),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=12,
)


def batch(rows):
    columns = [[row[index] for row in rows] for index in range(3)]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )


def digest(*batches):
    rows = RowsDigest()
    for each in batches:
        rows.update(each)
    return rows.hexdigest()


@given(ROWS, st.integers(0, 12))
def test_the_digest_does_not_depend_on_how_rows_are_cut(rows, cut):
    whole = batch(rows)
    assert digest(whole) == digest(whole.slice(0, cut), whole.slice(cut))
    assert digest(whole) == digest(batch(rows[:cut]), batch(rows[cut:]))


@given(ROWS, ROWS)
def test_other_rows_have_another_digest(rows, others):
    assert (digest(batch(rows)) == digest(batch(others))) == (rows == others)


def test_moving_text_between_neighbours_changes_the_digest():
    one = batch([("ab", [1], 0), ("c", [2, 3], 0)])
    two = batch([("a", [1, 2], 0), ("bc", [3], 0)])
    assert digest(one) != digest(two)


def pairs(num_rows):
    names = pa.DictionaryArray.from_arrays(pa.array([0] * num_rows, pa.int32()), ["corpus"])
    texts = [f"row {number}" for number in range(num_rows)]
    columns = [pa.array(texts), pa.array(texts), names, pa.array(range(num_rows), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=PAIRS)


@pytest.mark.parametrize("batch_rows", [1, 4, 7, 25])
def test_shards_are_the_same_however_rows_arrive(tmp_path, batch_rows):
    with ParquetShards(tmp_path, PAIRS, rows_per_shard=10) as shards:
        for start in range(0, 25, batch_rows):
            shards.write(pairs(25).slice(start, batch_rows))
    files = sorted(tmp_path.glob("*.parquet"))
    assert [rows_digest(path)[0] for path in files] == [10, 10, 5]
    lines = [line for part in read_batches(files) for line in part["line"].to_pylist()]
    assert lines == list(range(25))


def test_an_empty_table_is_a_table(tmp_path):
    with ParquetShards(tmp_path, PAIRS):
        pass
    [path] = tmp_path.glob("*.parquet")
    assert rows_digest(path)[0] == 0


def test_reading_holds_a_part_of_a_file_and_not_the_file(tmp_path):
    numbers = np.random.default_rng(1).integers(1 << 62, size=1_000_000)
    rows = pa.record_batch([pa.array(numbers).cast(pa.string())], names=["text"])
    with ParquetShards(tmp_path, rows.schema) as shards:
        shards.write(rows)
    [path] = tmp_path.glob("*.parquet")
    del rows
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in read_batches([path], 1000)]
    assert path.stat().st_size > 8_000_000
    assert max(held) < path.stat().st_size / 3


def test_no_module_opens_parquet_in_another_way():
    project = Path(__file__).parents[2]
    openers = [
        path.name
        for room in ("pipeline", "flows", "infra")
        for path in (project / room).rglob("*.py")
        if "ParquetFile(" in path.read_text() or "pq.read_table" in path.read_text()
    ]
    assert openers == ["tables.py"]
