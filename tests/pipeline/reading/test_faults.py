"""Bad rows: named all together, or left out and counted; never half of either."""

import re

import numpy as np
import pyarrow as pa
import pytest

from pipeline.errors import CorpusError
from pipeline.reading.faults import Chunk, Fault, Faults


def fault(line, kind="encoding", file="a.de", byte=None, what="is odd", unit="line"):
    return Fault(file, line, byte, kind, what, b"raw", unit)


def chunk(*lines, faults=(), left_out=None):
    texts = pa.array([f"text {line}" for line in lines], pa.string())
    return Chunk(texts, texts, np.array(lines, dtype=np.int64), faults, left_out or {})


def lines_of(batches):
    return [line for batch in batches for line in batch["line"].to_pylist()]


def test_good_rows_come_as_they_are():
    faults = Faults()
    batches = list(faults.sift([chunk(1, 2), chunk(), chunk(5)]))
    assert lines_of(batches) == [1, 2, 5]
    assert batches[0].schema.types == [pa.string(), pa.string(), pa.int64()]
    assert not faults.rejected


def test_a_stop_names_the_faults_of_all_chunks_by_file():
    chunks = [
        chunk(1, 2, 3, faults=[fault(3, byte=7), fault(1, file="a.en")]),
        chunk(4, 5, faults=[fault(5, unit="row", what="is worse")]),
    ]
    with pytest.raises(CorpusError) as error:
        list(Faults("stop").sift(chunks))
    assert str(error.value) == (
        "Every row must be a pair of texts, but 3 are not. `a.de`: line 3, byte 7 is odd; row 5 is "
        "worse. `a.en`: line 1 is odd. Mend or remove them, or leave such rows out with "
        '`on_bad_rows = "reject"`. A file in another encoding can be converted '
        "(`iconv -f LATIN1 -t UTF-8`)."
    )


def test_a_stop_names_the_first_twenty_and_counts_the_rest():
    chunks = [chunk(line, faults=[fault(line)]) for line in range(1, 3001)]
    with pytest.raises(CorpusError, match=r"but 3,000 are not.*; and 2,980 more\. Mend") as error:
        list(Faults("stop").sift(chunks))
    assert re.findall(r"line (\d+)", str(error.value)) == [str(line) for line in range(1, 21)]


def test_a_reject_leaves_out_tells_and_counts_each_row_once():
    told = []
    faults = Faults("reject", told.append)
    both_sides = [fault(2, "encoding"), fault(2, "columns"), fault(1, "json")]
    batches = list(faults.sift([chunk(1, 2, 3, faults=both_sides), chunk(4, faults=[fault(4)])]))
    assert lines_of(batches) == [3]
    assert faults.rejected == {"json": 1, "encoding": 2}
    assert [(each.line, each.kind) for each in told] == [
        (1, "json"),
        (2, "encoding"),
        (4, "encoding"),
    ]


def test_what_is_left_out_is_counted_and_stops_nothing():
    faults = Faults("stop")
    batches = faults.sift([chunk(2, left_out={"metadata": 3}), chunk(left_out={"metadata": 1})])
    assert lines_of(batches) == [2]
    assert faults.left_out == {"metadata": 4}


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], r"must hold at least one pair, but none is left \(no rows\)\."),
        ([chunk(left_out={"fuzzy": 1200})], r"none is left \(1,200 fuzzy\)"),
        (
            [chunk(1, faults=[fault(1)])],
            r"none is left \(1 encoding\)\. .*first: `a.de`, line 1 is",
        ),
    ],
)
def test_a_corpus_without_a_row_is_none(chunks, message):
    with pytest.raises(CorpusError, match=message):
        list(Faults("reject").sift(chunks))
