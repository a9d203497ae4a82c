"""Which source positions a translation looks at: cross-attention weights, and their maxima.

Axes: B sentences, S source, T target positions, H heads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.config import BOS, PAD
from model.transformer import Transformer, pad_sequences


def align(
    model: Transformer, src_BS: Tensor, ids: Sequence[Sequence[Sequence[int]]], layer: int
) -> list[list[list[int]]]:
    """For each token of each hypothesis of each sentence, the source position it looks at most.

    Weights are averaged over the heads of a decoder layer, counted from 1. They are read in one
    pass over whole translations, after the search: it costs a search that does not ask nothing.
    """
    found: list[list[list[int]]] = [[] for _ in ids]
    for rank in range(max(map(len, ids), default=0)):
        rows = [row for row, hypotheses in enumerate(ids) if rank < len(hypotheses)]
        tokens = [ids[row][rank] for row in rows]
        weights_BTS = cross_weights(model, src_BS[rows], tokens, layer)
        for row, some, places in zip(rows, tokens, weights_BTS.argmax(-1).tolist(), strict=True):
            found[row].append(places[: len(some)])
    return found


def cross_weights(
    model: Transformer, src_BS: Tensor, ids: Sequence[Sequence[int]], layer: int
) -> Tensor:
    """The weights (B, T, S) with which a layer looks at the source when it predicts each token.

    T has a place for each token and one more, for EOS, where the positions reach so far. Rows of weights sum to 1; padding of the
    source has weight 0; places after a translation's EOS have no meaning.

    Args:
        model: In evaluation mode.
        src_BS: The sources.
        ids: A translation of each, without BOS and EOS.
        layer: A decoder layer, counted from 1. Its heads are averaged.

    Raises:
        ValueError: If the decoder has no such layer.
    """
    if not 1 <= layer <= len(model.decoder):
        raise ValueError(
            f"`align_layer` must be a decoder layer (1 to {len(model.decoder)}), but is {layer}."
        )
    longest = model.config.max_positions
    tgt_in_BT = pad_sequences([[BOS, *tokens][:longest] for tokens in ids]).to(src_BS)
    with torch.no_grad():
        weights_BHTS = model.cross_weights(tgt_in_BT, model.encode(src_BS), layer)
    return weights_BHTS.mean(dim=1).masked_fill((src_BS == PAD)[:, None], 0.0)
