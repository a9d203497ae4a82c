import csv

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cleaning.statistics import Histograms, read_histogram


def pairs(*rows):
    return pa.RecordBatch.from_pylist(
        [{"src": src, "tgt": tgt} for src, tgt in rows],
        schema=pa.schema([("src", pa.string()), ("tgt", pa.string())]),
    )


def written(histograms, folder):
    histograms.write(folder / "statistics.csv")
    return folder / "statistics.csv"


def test_each_measure_counts_each_row_once_in_its_own_bin(tmp_path):
    histograms = Histograms()
    histograms.add("kept", pairs(("a b c", "d e f"), ("a", "b")))
    histograms.add("rejected", pairs(("one", "a b c d e f g h")))
    rows = list(csv.DictReader(written(histograms, tmp_path).read_text().splitlines()))
    counted = {(row["measure"], row["from"]): (row["kept"], row["rejected"]) for row in rows}
    assert counted == {
        ("src_words", "1"): ("1", "1"),
        ("src_words", "3"): ("1", "0"),
        ("tgt_words", "1"): ("1", "0"),
        ("tgt_words", "3"): ("1", "0"),
        ("tgt_words", "8"): ("0", "1"),
        ("src_chars", "0"): ("2", "1"),
        ("tgt_chars", "0"): ("2", "0"),
        ("tgt_chars", "10"): ("0", "1"),
        ("log2_word_ratio", "-0.0625"): ("2", "0"),
        ("log2_word_ratio", "2.9375"): ("0", "1"),
    }


def test_what_is_outside_is_counted_at_the_edge(tmp_path):
    histograms = Histograms()
    histograms.add("kept", pairs(("w " * 999 + "w", "x"), ("", "y " * 500)))
    for measure in ("src_words", "tgt_chars", "log2_word_ratio"):
        _, counts = read_histogram(written(histograms, tmp_path), measure)["kept"]
        assert counts.sum() == 2


def test_scripts_without_spaces_are_measured_in_characters(tmp_path):
    histograms = Histograms()
    histograms.add("kept", pairs(("これは本です。", "This is a book.")))
    middles, counts = read_histogram(written(histograms, tmp_path), "src_words")["kept"]
    assert (middles.tolist(), counts.tolist()) == ([7.5], [1])


texts = st.text(alphabet="ab 本", max_size=30)


@given(rows=st.lists(st.tuples(texts, texts), max_size=20), cut=st.integers(0, 20))
def test_the_counts_do_not_depend_on_the_batches(rows, cut, tmp_path_factory):
    whole, parts = Histograms(), Histograms()
    whole.add("kept", pairs(*rows))
    for part in (rows[:cut], rows[cut:]):
        parts.add("kept", pairs(*part))
    folder = tmp_path_factory.mktemp("statistics")
    assert written(whole, folder).read_bytes() == written(parts, folder).read_bytes()
    _, counts = read_histogram(folder / "statistics.csv", "src_words")["kept"]
    assert np.sum(counts) == len(rows)
