from pipeline.builtin.rng import Rng


def test_the_stream_is_the_same_everywhere():
    rng = Rng(1, "train")
    assert [rng.bits() for _ in range(3)] == GOLDEN


def test_streams_of_one_seed_differ():
    first, second = Rng(1, "train"), Rng(1, "evaluation")
    assert [first.bits() for _ in range(4)] != [second.bits() for _ in range(4)]


def test_numbers_stay_in_their_bounds_and_reach_them():
    rng = Rng(7)
    assert {rng.below(3) for _ in range(100)} == {0, 1, 2}
    assert {rng.between(5, 7) for _ in range(100)} == {5, 6, 7}
    assert {rng.pick("ab") for _ in range(100)} == {"a", "b"}


def test_chance_keeps_its_share():
    rng = Rng(7)
    assert 2300 < sum(rng.chance(25) for _ in range(10_000)) < 2700
    assert not any(rng.chance(0) for _ in range(100))
    assert all(rng.chance(100) for _ in range(100))


GOLDEN = [7102678366449108174, 13731833190421547267, 4616107989085574438]
