import hashlib
import subprocess
import sys
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import BOS, EOS, PAD
from pipeline import batching
from pipeline.batching import Plan, TokenShards, TokenTable, dev_batches
from pipeline.errors import ConfigError, CorpusError


def lengths_like_multi30k(num_rows, seed=0):
    random = np.random.default_rng(seed)
    src = np.clip(random.normal(16, 5, num_rows).round(), 5, 52)
    tgt = np.clip((src * random.lognormal(0.05, 0.17, num_rows)).round(), 4, 60)
    return src.astype(np.int32), tgt.astype(np.int32)


def lengths_like_wmt(num_rows):
    """As in `tests/bench/plan.py`."""
    random = np.random.default_rng(0)
    src = np.clip(random.lognormal(3.18, 0.55, num_rows).round(), 2, 251)
    tgt = np.clip((src * random.lognormal(0.03, 0.19, num_rows)).round(), 2, 251)
    return src.astype(np.int32), tgt.astype(np.int32)


def small_plan(num_rows=1000, **changes):
    src, tgt = lengths_like_multi30k(num_rows)
    plan = Plan(src, tgt, 7, 256, 4, rows_per_block=64, blocks_per_pool=3)
    return replace(plan, **changes)


def table_of(pairs, dtype=np.uint16):
    """Make a table whose offsets do not start at 0, as those of an Arrow slice do not."""

    def side(rows):
        flat = np.array([9, 9, *(piece for row in rows for piece in row)], dtype)
        return flat, np.cumsum([2, *map(len, rows)]).astype(np.int32)

    src, tgt = zip(*pairs, strict=True) if pairs else ((), ())
    return TokenTable(*side(src), *side(tgt))


def random_pairs(num_rows, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 9, (num_rows, 2))
    return [tuple(random.integers(4, 1000, size).tolist() for size in row) for row in lengths]


@dataclass
class Recorded:
    """Lengths that remember how many were asked for at once."""

    lengths: np.ndarray
    asked: list[int] = field(default_factory=list)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        found = self.lengths[rows]
        self.asked.append(len(found))
        return found


def same_step(left, right):
    return left[:2] + left[3:] == right[:2] + right[3:] and all(
        np.array_equal(*rows) for rows in zip(left.micro_batches, right.micro_batches, strict=True)
    )


@settings(max_examples=60)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=200),
    seed=st.integers(0, 2**40),
    tokens=st.integers(30, 200),
    rows_per_block=st.integers(1, 50),
    blocks_per_pool=st.integers(1, 5),
)
def test_each_row_is_once_in_each_epoch_and_no_micro_batch_is_too_large(
    lengths, seed, tokens, rows_per_block, blocks_per_pool
):
    src, tgt = np.array(lengths, np.int32).T
    plan = Plan(src, tgt, seed, tokens, 2, rows_per_block, blocks_per_pool)
    for epoch in range(2):
        micro_batches = list(plan.micro_batches(epoch))
        assert sorted(np.concatenate(micro_batches).tolist()) == list(range(len(src)))
        assert all(len(rows) * max(src[rows].max(), tgt[rows].max()) <= tokens
                   for rows in micro_batches)  # fmt: skip


def test_steps_are_the_stream_of_micro_batches_cut_in_fours_across_epoch_borders():
    plan = small_plan()
    stream = [rows for epoch in range(3) for rows in plan.micro_batches(epoch)]
    epoch_size = len(list(plan.micro_batches(0)))
    assert epoch_size % 4, "the test needs a step that spans two epochs"
    for step in islice(plan.steps(), len(stream) // 4):
        start = (step.number - 1) * 4
        for index, rows in enumerate(step.micro_batches):
            assert np.array_equal(rows, stream[start + index])
        assert step.epoch == start // epoch_size or start >= 2 * epoch_size
        assert step.num_target_tokens == plan.tgt_lengths[np.concatenate(step.micro_batches)].sum()


def test_a_plan_entered_at_any_step_equals_the_tail_of_the_whole():
    plan = small_plan()
    whole = list(islice(plan.steps(), 90))
    for after in (0, 1, 2, 5, 13, 14, 15, 16, 17, 30, 63, 89):
        step = next(plan.steps(after))
        assert step.number == after + 1
        assert same_step(step, whole[after])


def test_a_plan_depends_on_seed_epoch_and_lengths_only():
    plan = small_plan()
    first = next(plan.steps())
    assert same_step(first, next(small_plan().steps()))
    as_int64 = replace(
        plan,
        src_lengths=plan.src_lengths.astype(np.int64),
        tgt_lengths=plan.tgt_lengths.astype(np.uint16),
    )
    assert same_step(first, next(as_int64.steps()))
    assert not same_step(first, next(replace(plan, seed=8).steps()))
    epochs = [np.concatenate(list(plan.micro_batches(epoch))).tolist() for epoch in range(2)]
    assert epochs[0] != epochs[1]


@settings(max_examples=40)
@given(seeds=st.lists(st.integers(0, 2**64), min_size=2, max_size=2, unique=True))
def test_each_seed_and_each_epoch_has_an_order_of_its_own(seeds):
    plans = [small_plan(seed=seed) for seed in seeds]
    pools = [[blocks.tolist() for blocks in plan._pools(epoch)]
             for plan in plans for epoch in (0, 1)]  # fmt: skip
    orders = [list(map(tuple, plan.micro_batches(epoch))) for plan in plans for epoch in (0, 1)]
    for left, right in combinations(range(4), 2):
        assert pools[left] != pools[right]
        assert orders[left] != orders[right]
        assert len(set(orders[left]) & set(orders[right])) < 0.5 * len(orders[left])


def test_within_one_pool_a_seed_decides_who_is_together_and_the_order():
    lengths = np.repeat(np.arange(5, 15), 64)
    one_pool = small_plan(src_lengths=lengths, tgt_lengths=lengths, blocks_per_pool=10)
    by_seed = [list(map(frozenset, replace(one_pool, seed=seed).micro_batches(0)))
               for seed in (1, 2)]  # fmt: skip
    widths = [[lengths[min(rows)] for rows in micro_batches] for micro_batches in by_seed]
    assert sorted(widths[0]) == sorted(widths[1])
    assert widths[0] != widths[1]
    assert not set(by_seed[0]) & set(by_seed[1])


@pytest.mark.parametrize("stops", [(), (1, 2), (13, 14, 15), (5, 17, 30, 31)])
def test_steps_hold_each_row_once_in_each_epoch_however_often_a_run_stops(stops):
    plan, num_epochs = small_plan(), 3
    assert len(list(plan._pools(0))) > 5
    num_steps = sum(len(list(plan.micro_batches(epoch))) for epoch in range(num_epochs)) // 4
    steps = [step for start, stop in pairwise([0, *stops, num_steps])
             for step in islice(plan.steps(start), stop - start)]  # fmt: skip
    assert [step.number for step in steps] == list(range(1, num_steps + 1))
    rows = np.concatenate([rows for step in steps for rows in step.micro_batches])
    for epoch in range(num_epochs - 1):
        assert sorted(rows[epoch * 1000 : (epoch + 1) * 1000]) == list(range(1000))
    rest = rows[(num_epochs - 1) * 1000 :].tolist()
    assert len(rest) == len(set(rest)) > 900


def test_planning_reads_a_block_at_a_time_whatever_the_number_of_rows(monkeypatch):
    monkeypatch.setattr(batching, "_PIECE_ROWS", 100)
    sides = [Recorded(lengths) for lengths in lengths_like_multi30k(10_000)]
    plan = small_plan(src_lengths=sides[0], tgt_lengths=sides[1])
    assert [max(side.asked) for side in sides] == [100, 100]
    whole = small_plan(10_000)
    for side in sides:
        side.asked.clear()
    for step in islice(plan.steps(), 5):
        assert same_step(step, next(whole.steps(step.number - 1)))
    assert all(max(side.asked) == 64 and sum(side.asked) < 5 * 64 * 3 for side in sides)
    list(islice(plan.steps(after=700), 5))
    assert all(max(side.asked) == 64 for side in sides)


def test_the_plan_has_not_changed():
    # A new digest means that every training run changes: raise the version of `train` with it.
    row = np.arange(1000)
    plan = small_plan(src_lengths=4 + row * 7919 % 23, tgt_lengths=4 + row * 104729 % 31)
    digest = hashlib.sha256()
    for step in islice(plan.steps(), 40):
        for rows in step.micro_batches:
            digest.update(rows.astype("<i8").tobytes() + b"|")
    assert digest.hexdigest()[:16] == "f1c8b635d8cced45"


def test_blocks_and_micro_batches_are_shuffled():
    plan = small_plan(10_000)
    micro_batches = list(plan.micro_batches(0))
    longest = [plan.src_lengths[rows].max() for rows in micro_batches]
    assert abs(np.corrcoef(longest[:-1], longest[1:])[0, 1]) < 0.15
    position = np.concatenate(micro_batches)
    assert abs(np.corrcoef(position, np.arange(len(position)))[0, 1]) < 0.2


def test_rows_of_a_micro_batch_come_from_one_pool():
    plan = small_plan()
    assert all(len(set(rows // 64)) <= 3 for rows in plan.micro_batches(0))


@pytest.mark.parametrize(
    ("corpus", "num_rows", "tokens", "most"),
    [
        (lengths_like_multi30k, 29_000, 512, 0.015),
        (lengths_like_multi30k, 29_000, 2048, 0.035),
        (lengths_like_multi30k, 29_000, 4096, 0.05),
        (lengths_like_wmt, 1_000_000, 4096, 0.05),
    ],
)
def test_padding_is_a_small_share_of_each_side(corpus, num_rows, tokens, most):
    src, tgt = corpus(num_rows)
    plan = Plan(src, tgt, 1, tokens, 4)
    micro_batches = list(plan.micro_batches(0))
    for lengths in (src, tgt):
        cells = sum(len(rows) * int(lengths[rows].max()) for rows in micro_batches)
        assert 1 - lengths.sum() / cells < most


def test_a_corpus_of_one_row_fills_a_step_with_epochs():
    plan = Plan(np.array([3], np.int32), np.array([4], np.int32), 0, 8, 4)
    first, second = islice(plan.steps(), 2)
    assert [rows.tolist() for rows in first.micro_batches] == [[0]] * 4
    assert (first.number, first.epoch, first.num_target_tokens) == (1, 0, 16)
    assert (second.number, second.epoch) == (2, 4)


@pytest.mark.parametrize(("src", "tgt", "side"), [([3, 9], [3, 3], "source"), ([3, 3], [3, 9], "target")])  # fmt: skip
def test_a_row_longer_than_a_micro_batch_is_an_error_that_says_what_to_raise(src, tgt, side):
    with pytest.raises(ConfigError, match=rf"`train\.tokens_per_micro_batch` .* is 8 and the {side} side of row 1 has 9 tokens\. Raise it to 9"):  # fmt: skip
        Plan(np.array(src), np.array(tgt), 0, 8, 1)


@pytest.mark.parametrize("row", [0, 9, 10, 24])
def test_the_first_of_the_longest_rows_is_found_wherever_it_is(monkeypatch, row):
    monkeypatch.setattr(batching, "_PIECE_ROWS", 10)
    lengths = np.full(25, 3, np.uint16)
    lengths[[row, -1]] = 9
    with pytest.raises(ConfigError, match=rf"source side of row {row} has 9 tokens"):
        Plan(lengths, lengths, 0, 8, 1)
    Plan(lengths, lengths, 0, 9, 1)


def test_an_empty_corpus_is_an_error():
    with pytest.raises(CorpusError, match="at least one row"):
        Plan(np.array([], np.int32), np.array([], np.int32), 0, 8, 1)


def test_sides_of_unequal_length_are_a_bug():
    with pytest.raises(ValueError, match="same number of rows"):
        Plan(np.array([1, 2]), np.array([1]), 0, 8, 1)


def test_dev_batches_hold_each_row_once_and_keep_a_row_that_is_too_long():
    src, tgt = lengths_like_multi30k(300)
    src[17] = 900
    batches = dev_batches(src, tgt, 256)
    assert sorted(np.concatenate(batches).tolist()) == list(range(300))
    assert [17] in [rows.tolist() for rows in batches]
    assert all(len(rows) * max(src[rows].max(), tgt[rows].max()) <= 256
               for rows in batches if 17 not in rows)  # fmt: skip
    again = dev_batches(src, tgt, 256)
    assert all(np.array_equal(*pair) for pair in zip(batches, again, strict=True))
    assert dev_batches(src[:0], tgt[:0], 256) == []


def test_collate_puts_marks_and_padding_where_the_model_expects_them():
    shards = TokenShards([table_of([([11, 12], [21]), ([13], [22, 23, 24])])])
    batch = shards.collate(np.array([1, 0]))
    assert batch.src_BS.tolist() == [[13, EOS, PAD], [11, 12, EOS]]
    assert batch.tgt_in_BT.tolist() == [[BOS, 22, 23, 24], [BOS, 21, PAD, PAD]]
    assert batch.tgt_out_BT.tolist() == [[22, 23, 24, EOS], [21, EOS, PAD, PAD]]
    assert {array.dtype for array in batch} == {np.dtype(np.int64)}
    assert shards.src_lengths[:].tolist() == [3, 2]
    assert shards.tgt_lengths[:].tolist() == [2, 4]


def test_a_row_without_pieces_is_its_marks():
    batch = TokenShards([table_of([([], [])])]).collate(np.array([0]))
    assert batch.src_BS.tolist() == [[EOS]]
    assert batch.tgt_in_BT.tolist() == [[BOS]]
    assert batch.tgt_out_BT.tolist() == [[EOS]]


@pytest.mark.parametrize("cuts", [(), (0,), (13, 40), (1, 2, 2, 3, 30, 59), (60,)])
def test_lengths_and_batches_do_not_depend_on_how_rows_are_cut_into_shards(cuts):
    pairs = random_pairs(60)
    whole = TokenShards([table_of(pairs, np.int32)])
    borders = [0, *cuts, 60]
    shards = TokenShards([table_of(pairs[start:stop]) for start, stop in pairwise(borders)])
    assert len(shards) == 60
    assert np.array_equal(shards.src_lengths[:], whole.src_lengths[:])
    assert np.array_equal(shards.tgt_lengths[:], whole.tgt_lengths[:])
    rows = np.random.default_rng(1).permutation(60)
    for left, right in zip(shards.collate(rows), whole.collate(rows), strict=True):
        assert np.array_equal(left, right)
    for row, got in zip(rows, shards.collate(rows).src_BS.tolist(), strict=True):
        assert [piece for piece in got if piece != PAD] == [*pairs[row][0], EOS]


@pytest.mark.parametrize("cuts", [(), (0, 0), (13, 40), (1, 2, 2, 3, 30, 60)])
def test_a_slice_of_lengths_is_that_of_all_lengths(monkeypatch, cuts):
    monkeypatch.setattr(batching, "_PIECE_ROWS", 7)
    pairs = random_pairs(60)
    shards = TokenShards([table_of(pairs[start:stop]) for start, stop in pairwise([0, *cuts, 60])])
    for side, read in enumerate((shards.src_lengths, shards.tgt_lengths)):
        lengths = [len(pair[side]) + 1 for pair in pairs]
        assert list(read) == lengths
        assert read.max() == max(lengths)
        for start in range(62):
            for stop in (start - 1, start, start + 1, start + 20, None):
                assert read[start:stop].tolist() == lengths[start:stop]
        assert read[:].dtype == np.int32


@pytest.mark.parametrize("cuts", [(200, 201, 201, 640), (64, 1000)])
def test_a_plan_does_not_depend_on_how_rows_are_cut_into_shards(cuts):
    pairs = random_pairs(1000)
    src, tgt = (np.array([len(pair[side]) + 1 for pair in pairs]) for side in (0, 1))
    shards = TokenShards([table_of(pairs[i:j]) for i, j in pairwise([0, *cuts, 1000])])
    plan = small_plan(src_lengths=shards.src_lengths, tgt_lengths=shards.tgt_lengths)
    whole = small_plan(src_lengths=src, tgt_lengths=tgt)
    assert all(map(same_step, islice(plan.steps(), 40), islice(whole.steps(), 40)))


def test_no_shards_hold_no_rows():
    shards = TokenShards([])
    assert len(shards) == len(shards.src_lengths) == shards.src_lengths.max() == 0
    assert list(shards.tgt_lengths) == shards.tgt_lengths[:].tolist() == []


def test_planning_loads_no_framework():
    heavy = "import sys; import pipeline.batching; assert not {'torch', 'ray', 'prefect', 'mlflow', 'pyarrow'} & set(sys.modules)"  # fmt: skip
    subprocess.run([sys.executable, "-c", heavy], check=True)
