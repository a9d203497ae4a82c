"""Numbers of rows: by place alone, evenly spread; samples of bounded size."""

import numpy as np
import pyarrow as pa
import pytest

from pipeline.pieces.row_hash import row_hashes, sample_end


def test_the_numbers_are_the_same_on_every_machine():
    """Other numbers mean another order of all training pairs: raise `tokenize`'s version."""
    hashes = row_hashes(pa.array(["a", "b", "a"]), np.array([1, 1, 2]))
    assert [f"{number:016x}" for number in hashes.tolist()] == [
        "173d98256263d1d5",
        "cbd4d7823bdb1178",
        "e8b4ecabc9bfb391",
    ]


def test_a_number_depends_on_the_rows_place_alone():
    names, lines = pa.array(["x", "y", "x", "x"]), np.array([1, 1, 2, 3])
    whole = row_hashes(names, lines)
    assert len(set(whole.tolist())) == 4
    assert row_hashes(names.slice(1, 2), lines[1:3]).tolist() == whole[1:3].tolist()
    encoded = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array(["y", "unused", "x"]))
    assert row_hashes(encoded, np.array([2, 1])).tolist() == [whole[2], whole[1]]


def test_the_numbers_are_evenly_spread():
    hashes = row_hashes(pa.array(["x"] * 100_000), np.arange(1, 100_001))
    counts = np.bincount((hashes >> np.uint64(60)).astype(int), minlength=16)
    assert abs(counts / 6_250 - 1).max() < 0.05


@pytest.mark.parametrize("most", [1_000, 5_000, 19_999])
def test_a_sample_is_of_bounded_size_and_hardly_smaller(most):
    hashes = row_hashes(pa.array(["x"] * 20_000), np.arange(1, 20_001))
    end, size = sample_end(iter([hashes[:7], hashes[7:9_000], hashes[9_000:]]), most)
    assert most - 10 <= size <= most
    assert (hashes < np.uint64(end)).sum() == size
    assert sample_end(iter([hashes]), most) == (end, size)
