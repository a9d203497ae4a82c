"""How much arithmetic a model needs, and how much a device can do: their ratio is the utilisation.

Counted are the matrix products of forward and backward pass over tokens, without padding; the rest
is little. The device's rate is measured with one large product, so that the ratio means the same on
every device. Axis: B sentences.
"""

from time import perf_counter

import torch
from torch import Tensor

from model.config import ModelConfig

TRIES = 5


class Flops:
    """Floating point operations of training one model; a multiplication and an addition are two."""

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        keys, values = config.dim * config.head_key_dim, config.dim * config.head_value_dim
        both = config.num_heads * (keys + values)
        ff = 2 * config.dim * config.ff_dim
        encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
        # Per token: projections (two of them for keys' width, two for values'), feed-forward.
        self._src = encoder * (2 * both + ff) + decoder * both  # the decoder's keys and values
        self._tgt = decoder * (3 * both + ff) + config.dim * vocab_size
        # Per pair of positions: a score, and a value weighted by it.
        pair = config.num_heads * (config.head_key_dim + config.head_value_dim)
        self._src_src, self._tgt_either = encoder * pair, decoder * pair

    def of(self, src_lengths_B: Tensor, tgt_lengths_B: Tensor) -> Tensor:
        """Count the operations of one training pass over pairs of these lengths: a scalar, fp64."""
        src_B, tgt_B = src_lengths_B.double(), tgt_lengths_B.double()
        products_B = (
            self._src * src_B
            + self._tgt * tgt_B
            + self._src_src * src_B * src_B
            + self._tgt_either * tgt_B * (src_B + tgt_B)
        )
        # The backward pass has two products for each one of the forward pass.
        return 3 * 2 * products_B.sum()


def peak_flops_per_s(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the rate of a large matrix product: the best of a few tries, some 0.1 s in all."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = torch.ones(2, size, size, device=device, dtype=dtype)
    took_s = []
    for _ in range(1 + TRIES):  # the first one loads the library
        _wait_for(device)
        started_at_s = perf_counter()
        left @ right
        _wait_for(device)
        took_s.append(perf_counter() - started_at_s)
    return 2 * size**3 / min(took_s)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
