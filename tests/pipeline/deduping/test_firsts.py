"""The first of equal keys, however rows are cut into spans and keys into ranges."""

import itertools
import random

import numpy as np
import pytest

from pipeline.deduping.firsts import (
    Partition,
    find_firsts,
    find_later,
    key_ranges,
    rows_between,
    write_keys,
)
from pipeline.deduping.match_keys import KEY


@pytest.fixture
def find(tmp_path):
    """Rows found, by span and over all, and what the files of spans hold."""
    numbers = itertools.count()

    def run(function, keys, span_rows, num_ranges):
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        paths, repeated = [], []
        for start in range(0, len(keys), span_rows):
            paths.append(str(folder / f"span-{start}.npy"))
            here = write_keys(folder / paths[-1], keys[start : start + span_rows], start)
            repeated += (start + np.flatnonzero(here)).tolist()
        found = []
        for low, high in key_ranges(num_ranges, 1):
            part = Partition(low, high, str(folder / f"range-{low}.npy"))
            number = function(part, paths)
            found.append(np.load(part.out).astype(np.int64).tolist())
            assert number == len(found[-1])
        return repeated, found, paths

    return run


def random_keys(seed, num_rows, num_keys):
    draw = random.Random(seed)
    # Halves that are equal to another key's, and both ends of the ranges.
    halves = [
        0,
        1,
        (1 << 63) - 1,
        1 << 63,
        (1 << 64) - 1,
        *(draw.getrandbits(64) for _ in range(3)),
    ]
    pool = [(draw.choice(halves), draw.choice(halves)) for _ in range(num_keys)]
    return np.array([draw.choice(pool) for _ in range(num_rows)], dtype=KEY)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("span_rows", [1, 7, 100])
@pytest.mark.parametrize("num_ranges", [1, 2, 5])
def test_later_rows_are_those_of_a_plain_search(find, seed, span_rows, num_ranges):
    keys = random_keys(seed, 60, 25)
    seen, later = set(), []
    for row, key in enumerate(keys.tolist()):
        if key in seen:
            later.append(row)
        seen.add(key)
    repeated, found, _ = find(find_later, keys, span_rows, num_ranges)
    assert sorted({*repeated, *itertools.chain(*found)}) == later
    assert all(rows == sorted(rows) for rows in found)


@pytest.mark.parametrize(("span_rows", "num_ranges"), [(100, 1), (7, 1), (7, 3), (1, 5)])
def test_first_rows_come_in_the_order_of_keys(find, span_rows, num_ranges):
    keys = random_keys(1, 60, 25)
    first = {}
    for row, key in enumerate(keys.tolist()):
        first.setdefault(key, row)
    _, found, _ = find(find_firsts, keys, span_rows, num_ranges)
    assert list(itertools.chain(*found)) == [first[key] for key in sorted(first)]


def test_a_key_repeated_without_end_is_handed_on_once_a_span(find):
    keys = np.zeros(1000, dtype=KEY)
    repeated, found, paths = find(find_later, keys, 100, 4)
    assert [np.load(path).shape for path in paths] == [(3, 1)] * 10
    assert sorted(map(len, found)) == [0, 0, 0, 9]
    assert len({*repeated, *itertools.chain(*found)}) == 999


@pytest.mark.parametrize("num_rows", [0, 1, 9, 10, 11, 95])
def test_ranges_cover_all_keys_and_grow_with_the_rows(num_rows):
    ranges = key_ranges(num_rows, 10)
    assert len(ranges) == max(1, -(-num_rows // 10))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == (1 << 64) - 1
    assert all(high + 1 == low for (_, high), (low, _) in itertools.pairwise(ranges))


def test_rows_between_are_found_in_a_file(tmp_path):
    np.save(tmp_path / "rows.npy", np.array([3, 5, 8], dtype=np.uint64))
    assert rows_between(str(tmp_path / "rows.npy"), 3, 8).tolist() == [3, 5]
    assert rows_between(str(tmp_path / "rows.npy"), 9, 20).tolist() == []


def test_a_repeated_task_leaves_one_whole_file(tmp_path):
    keys = random_keys(1, 20, 9)
    for _ in range(2):
        write_keys(tmp_path / "keys.npy", keys, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["keys.npy"]
