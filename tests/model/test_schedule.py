"""The learning rate: peaks, slopes, range."""

import pytest

from model.schedule import learning_rate


@pytest.mark.parametrize(("dim", "peak"), [(512, 6.99e-4), (1024, 4.94e-4)])
def test_the_papers_models_peak_where_derived(dim: int, peak: float):
    rates = [learning_rate(step, dim, 4_000) for step in range(1, 20_000)]
    assert max(rates) == pytest.approx(peak, rel=1e-3)
    assert rates.index(max(rates)) + 1 == 4_000


def test_warm_up_is_linear():
    assert learning_rate(30, 512, 4_000) == pytest.approx(30 * learning_rate(1, 512, 4_000))


def test_decay_is_the_root_of_the_step():
    peak = learning_rate(4_000, 512, 4_000)
    assert learning_rate(16_000, 512, 4_000) == pytest.approx(peak / 2)


def test_scale_is_a_factor():
    assert learning_rate(7, 512, 10, scale=3.0) == pytest.approx(3 * learning_rate(7, 512, 10))


def test_step_zero_is_refused():
    with pytest.raises(ValueError, match=r"`step` must be at least 1, but is 0\."):
        learning_rate(0, 512, 4_000)
