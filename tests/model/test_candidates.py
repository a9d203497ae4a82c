"""Candidates: the same as by sorting everything."""

import math

import pytest
import torch

from model.candidates import MOST_NUMBERS, Rules, continuations, draw_uniform, largest
from model.config import BOS, PAD, ModelConfig, SearchConfig
from model.transformer import Transformer


@pytest.mark.parametrize("vocab_size", [5, 31, 32, 33, 100, 320])
@pytest.mark.parametrize("count", [1, 8, 40])
def test_the_largest_are_those_of_a_sort(vocab_size: int, count: int):
    x_BWV = torch.randn(3, 4, vocab_size, generator=torch.Generator().manual_seed(1))
    x_BWV[0, :2] = -math.inf
    value_BC, index_BC = largest(x_BWV, count)
    expected_BN = x_BWV.flatten(1).sort(descending=True).values
    assert torch.equal(value_BC, expected_BN[:, :count])
    assert torch.equal(x_BWV.flatten(1).gather(1, index_BC), value_BC)
    assert all(len(set(row)) == len(row) for row in index_BC.tolist())


def test_sentences_taken_some_at_a_time_get_the_same(monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(1)
    shape = ModelConfig(dim=8, ff_dim=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(shape, 40).double().eval()
    hidden_BWD, log_prob_BW = torch.randn(5, 3, 8).double(), -torch.rand(5, 3).double()
    forced_B = torch.tensor([PAD, 7, PAD, PAD, 9])
    rules = Rules(6, SearchConfig(), forced_B, None)
    with torch.no_grad():
        whole = continuations(model, hidden_BWD, log_prob_BW, rules)
        monkeypatch.setattr("model.candidates.MOST_NUMBERS", 2 * 3 * 40)
        parts = continuations(model, hidden_BWD, log_prob_BW, rules)
    assert MOST_NUMBERS > 5 * 3 * 40
    torch.testing.assert_close(parts, whole)
    possible_BC = whole.log_prob_BC > -math.inf
    assert set(whole.token_BC[4][possible_BC[4]].tolist()) == {9}
    assert not {PAD, BOS} & set(whole.token_BC[possible_BC].tolist())


def test_random_numbers_are_uniform_and_depend_on_each_argument():
    drawn_BW = draw_uniform(1, range(100), 50, place=3)
    assert 0 <= drawn_BW.min() <= drawn_BW.max() < 1
    assert abs(drawn_BW.mean() - 0.5) < 0.02
    assert drawn_BW.unique().numel() == 5000
    assert torch.equal(draw_uniform(1, [7], 50, 3)[0], drawn_BW[7])
    for other in (draw_uniform(2, [7], 50, 3), draw_uniform(1, [7], 50, 4)):
        assert not set(other[0].tolist()) & set(drawn_BW[7].tolist())
