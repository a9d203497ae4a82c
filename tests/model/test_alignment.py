"""Attention weights: those that the decoder used, without a look at padding."""

import dataclasses
from typing import Literal

import pytest
import torch

from model.alignment import align, cross_weights
from model.config import BOS, EOS, ModelConfig
from model.transformer import Transformer, join_heads, pad_sequences

CONFIG = ModelConfig(
    dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2, max_positions=16
)
SOURCES = [[4, 5, 6, EOS], [7, EOS]]
IDS = [[8, 9], [4, 5, 6]]


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CONFIG, 12).double().eval()


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("layer", [1, 2])
def test_the_weights_are_those_that_the_layer_uses(layer: int, norm: Literal["post", "pre"]):
    torch.manual_seed(1)
    model = Transformer(dataclasses.replace(CONFIG, norm=norm), 12).double().eval()
    used = []
    attention = model.decoder[layer - 1].cross_attention
    hook = attention.register_forward_hook(lambda *call: used.append((call[1], call[2])))
    model(pad_sequences(SOURCES), pad_sequences([[BOS, *ids] for ids in IDS]))
    hook.remove()
    (x_BTD, memory, _), result_BTD = used[0]
    weights_BHTS = attention.weights(x_BTD, memory)
    values = attention._project(memory, None).values
    again_BTD = attention.output(join_heads(weights_BHTS @ values))
    torch.testing.assert_close(again_BTD, result_BTD)
    found_BTS = cross_weights(model, pad_sequences(SOURCES), IDS, layer)
    torch.testing.assert_close(found_BTS, weights_BHTS.mean(dim=1))


def test_weights_have_a_row_per_token_and_none_for_padding(model: Transformer):
    weights_BTS = cross_weights(model, pad_sequences(SOURCES), IDS, layer=1)
    assert weights_BTS.shape == (2, 4, 4)
    torch.testing.assert_close(weights_BTS.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert (weights_BTS[1, :, 2:] == 0).all()


def test_alignments_are_the_largest_weights_of_each_hypothesis(model: Transformer):
    src_BS = pad_sequences(SOURCES)
    found = align(model, src_BS, [[[8, 9], [9, 8, 7]], [[4, 5, 6]]], layer=2)
    assert [[len(places) for places in some] for some in found] == [[2, 3], [3]]
    expected = cross_weights(model, src_BS[:1], [[9, 8, 7]], 2)[0, :3].argmax(-1).tolist()
    assert found[0][1] == expected


def test_translations_as_long_as_the_positions_are_aligned(model: Transformer):
    longest = list(range(4, 12)) * 2
    assert len(longest) == CONFIG.max_positions
    found = align(model, pad_sequences(SOURCES), [[longest], [longest[:3]]], layer=1)
    assert [len(places) for (places,) in found] == [16, 3]


@pytest.mark.parametrize("layer", [0, 3, -1])
def test_a_layer_that_is_not_there_is_refused(model: Transformer, layer: int):
    with pytest.raises(ValueError, match=rf"must be a decoder layer \(1 to 2\), but is {layer}"):
        cross_weights(model, pad_sequences(SOURCES), IDS, layer)
