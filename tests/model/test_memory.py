"""A decoder's memory: rows leave in place, dead tokens are left out, room grows."""

import pytest
import torch

from model.config import ModelConfig
from model.memory import FIRST_ROOM, STEPS_BETWEEN_CLEARINGS, KeysValues, LayerCache, keep_rows
from model.transformer import Transformer


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [0, 4, 2], [4, 3, 2, 1, 0], [], [3]])
def test_keeping_rows_is_choosing_them(rows: list[int]):
    x, rows_B = torch.randn(5, 3, 2), torch.tensor(rows, dtype=torch.long)
    expected = x[rows_B]
    kept = keep_rows(x, rows_B)
    assert torch.equal(kept, expected)
    assert kept.data_ptr() == x.data_ptr() or not rows


def test_a_past_longer_than_its_room_is_kept_whole():
    cache, new = LayerCache(), torch.randn(2, 3, 2 * FIRST_ROOM + 30, 4)
    for part in new.split(10, dim=2):
        past = cache.extend(KeysValues(part, -part))
    assert torch.equal(past.keys, new)
    assert torch.equal(past.values, -new)


def test_tokens_that_no_beam_looks_at_are_left_out():
    torch.manual_seed(1)
    shape = ModelConfig(dim=8, ff_dim=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = Transformer(shape, 20).double().eval()
    src_BS, token_BWT = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 3, 60))
    state = model.start(model.encode(src_BS))
    for token_BW in token_BWT.unbind(2):  # all beams go on from beam 1
        hidden_BWD = model.step(token_BW, torch.full((2, 3), min(state.length, 1)), state)
        places = state.caches[0].num_past
        assert places <= state.length + 3 * STEPS_BETWEEN_CLEARINGS
    prefix_BT = torch.cat([token_BWT[:, 1, :-1], token_BWT[:, 2, -1:]], dim=1)
    expected_BTD = model(src_BS, prefix_BT)
    torch.testing.assert_close(hidden_BWD[:, 2], expected_BTD[:, -1], rtol=0, atol=1e-12)
