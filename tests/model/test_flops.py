import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from model.config import ModelConfig
from model.flops import Flops, peak_flops_per_s
from model.transformer import Transformer

CONFIGS = [
    ModelConfig(dim=32, ff_dim=64, num_heads=4, num_encoder_layers=3, num_decoder_layers=2),
    ModelConfig(dim=32, ff_dim=64, num_heads=4, num_encoder_layers=1, num_decoder_layers=2,
                key_dim=4, value_dim=16),
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS)
def test_operations_are_those_that_torch_counts(config):
    vocab_size, src, tgt = 50, 11, 7
    model = Transformer(config, vocab_size).eval()
    src_BS, tgt_BT = torch.full((3, src), 5), torch.full((3, tgt), 5)
    # Torch counts attention only where it is made of plain products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counted:
        (model(src_BS, tgt_BT) @ model.embedding.weight.T).sum().backward()
    lengths = torch.full((3,), src), torch.full((3,), tgt)
    expected = Flops(config, vocab_size).of(*lengths).item()
    assert counted.get_total_flops() == pytest.approx(expected, rel=0.01)


def test_pairs_of_several_lengths_add_up():
    flops = Flops(CONFIGS[0], 50)
    src_B, tgt_B = torch.tensor([3, 9]), torch.tensor([4, 2])
    parts = [flops.of(src_B[row : row + 1], tgt_B[row : row + 1]).item() for row in (0, 1)]
    assert flops.of(src_B, tgt_B).item() == pytest.approx(sum(parts))


def test_the_rate_of_a_device_is_measured():
    assert 1e8 < peak_flops_per_s(torch.device("cpu"), torch.float32) < 1e14
