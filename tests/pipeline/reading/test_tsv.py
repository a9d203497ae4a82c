"""TSV: every line is a pair as it stands, or told by its number."""

import pyarrow as pa
import pytest

from pipeline.errors import CorpusError
from pipeline.reading import lines as lines_module
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_files
from pipeline.sources import Layout

TSV = Layout(format="tsv", columns=(0, 1))


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "corpus.tsv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def small_blocks(monkeypatch):
    """Every property must hold across the borders of blocks, and of what is read ahead."""
    monkeypatch.setattr(lines_module, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(lines_module, "_PENDING_BYTES", 64)


def rows(path, layout=TSV, faults=None):
    table = pa.Table.from_batches(list(read_files([path], layout, faults=faults)))
    return list(zip(*(table[name].to_pylist() for name in ("src", "tgt", "line")), strict=True))


def pairs(path, layout=TSV):
    found = rows(path, layout)
    assert [row[2] for row in found] == list(range(1, len(found) + 1))
    return [row[:2] for row in found]


def test_a_header_is_a_pair_unless_the_recipe_says_so(write):
    path = write("en\tde\na\tb\n")
    assert rows(path) == [("en", "de", 1), ("a", "b", 2)]
    without = Layout(format="tsv", columns=(0, 1), header=True)
    assert rows(path, without) == [("a", "b", 2)], "lines are those of the file"


def test_quotes_are_text_and_only_a_newline_ends_a_row(write, small_blocks):
    found = pairs(write('"a\t"b"\n\'c\u2028\x85\x0b\td\r\n"\t"\n'))
    assert found == [('"a', '"b"'), ("'c\u2028\x85\x0b", "d"), ('"', '"')]


def test_columns_are_taken_by_number_in_any_order(write):
    path = write("id\ta\tb\n1\tc\td\n2\t\tf\n")
    swapped = Layout(format="tsv", columns=(2, 1))
    assert pairs(path, swapped) == [("b", "a"), ("d", "c"), ("f", "")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n", r"column 1 \(from 0, between tabs\) in every line, but line 1 has 1 column\."),
        ("a\tb\n\nc\td\n", r"but 1 is not\. .*corpus.tsv`: line 2 has 1 column, not 2\. Mend"),
        ("a\nb\tc\nd\te\n", r"but 1 is not\. .*corpus.tsv`: line 1 has 1 column, not 2\. Mend"),
        ("a\tb\tc\n" + "a\tb\n" * 2, r"line 1 has 3 columns, not 2.*A tab is never part of"),
        ("a\tb\n" * 24 + "c\n" * 23, r"but 23 are not.*line 44 has 1 column, not 2; and 3 more\."),
        ("", r"is empty: there are no pairs"),
        (b"a\t\xfc\n", r"line 1, byte 2 is not UTF-8"),
        (b"PK\x03\x04", r"looks like a zip archive"),
        (b"PAR1", r"looks like Parquet"),
    ],
)
def test_what_is_no_tsv_is_refused(write, content, message):
    with pytest.raises(CorpusError, match=message):
        rows(write(content))


def test_rows_of_another_width_can_be_left_out(write):
    faults = Faults("reject")
    path = write(b"a\tb\tc\nd\te\nf\ng\t\xff\nh\ti\n")
    layout = Layout(format="tsv", columns=(0, 1), on_bad_rows="reject")
    assert rows(path, layout, faults) == [("d", "e", 2), ("h", "i", 5)]
    assert faults.rejected == {"columns": 2, "encoding": 1}


def test_a_header_alone_is_no_corpus(write):
    with pytest.raises(CorpusError, match="has a header and nothing else"):
        rows(write("en\tde\n"), Layout(format="tsv", columns=(0, 1), header=True))
