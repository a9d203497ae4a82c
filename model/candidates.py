"""Which tokens go on: the likeliest continuations of all beams, or one drawn for each beam.

Axes: B sentences, W beams, D width, V vocabulary, C candidates, G groups of neighbours in V.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import BOS, PAD, SearchConfig
from model.seeds import derive_seed
from model.transformer import Transformer

GROUP = 32
"""Neighbours in the vocabulary of which only the largest is compared at first."""
MOST_NUMBERS = 2**22
"""Most log-probabilities at once (16 MiB): more leave the cache, and glibc hands their memory back
to the system after every step."""


class Candidates(NamedTuple):
    """Continuations of each sentence's prefixes: the likeliest first, or one drawn per beam."""

    log_prob_BC: Tensor
    """Of the whole prefix, in nats. -inf: not one."""
    parent_BC: Tensor
    """The beam that each continues."""
    token_BC: Tensor


class Rules(NamedTuple):
    """What a step obeys, apart from the model."""

    num_candidates: int
    """How many to find, where there are as many."""
    config: SearchConfig
    forced_B: Tensor | None
    """The token that each sentence must go on with; PAD where it is free. None: all are free."""
    uniform_BW: Tensor | None
    """Random numbers in [0, 1) to draw tokens by. None: take the likeliest."""

    def of(self, rows: slice) -> "Rules":
        """Return the rules for some of the sentences."""
        forced_B = None if self.forced_B is None else self.forced_B[rows]
        uniform_BW = None if self.uniform_BW is None else self.uniform_BW[rows]
        return self._replace(forced_B=forced_B, uniform_BW=uniform_BW)


def continuations(
    model: Transformer, hidden_BWD: Tensor, log_prob_BW: Tensor, rules: Rules
) -> Candidates:
    """Return the `num_candidates` likeliest continuations, or one drawn per beam.

    Of 2·W at least W do not end, as each beam ends in one way only.

    Sentences are taken some at a time, so that memory does not grow with the batch.
    """
    at_once = max(1, MOST_NUMBERS // (hidden_BWD.shape[1] * model.vocab_size))
    parts = []
    for start in range(0, len(hidden_BWD), at_once):
        some = slice(start, start + at_once)
        log_probs_BWV = _log_probs(model.logits(hidden_BWD[some]), log_prob_BW.dtype)
        parts.append(_choose(log_probs_BWV, log_prob_BW[some], rules.of(some)))
    return Candidates(*map(torch.cat, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]


def draw_uniform(seed: int, sentences: Sequence[int], num_samples: int, place: int) -> Tensor:
    """Return fp64 numbers (B, W) in [0, 1) that depend on these and on nothing else."""
    numbers = [
        [(derive_seed(seed, sentence, n, place) >> 10) / 2**53 for n in range(num_samples)]
        for sentence in sentences
    ]
    return torch.tensor(numbers, dtype=torch.float64)


def _log_probs(logits_BWV: Tensor, dtype: torch.dtype) -> Tensor:
    log_probs_BWV = logits_BWV.log_softmax(dim=-1, dtype=dtype)
    log_probs_BWV[..., PAD] = -math.inf
    log_probs_BWV[..., BOS] = -math.inf
    return log_probs_BWV


def _choose(log_probs_BWV: Tensor, log_prob_BW: Tensor, rules: Rules) -> Candidates:
    if rules.forced_B is not None:
        log_probs_BWV = _force(log_probs_BWV, rules.forced_B)
    if rules.uniform_BW is not None:
        return _draw(log_probs_BWV, log_prob_BW, rules.uniform_BW, rules.config)
    vocab_size = log_probs_BWV.shape[-1]
    total_BWV = log_probs_BWV.add_(log_prob_BW[..., None])
    log_prob_BC, index_BC = largest(total_BWV, rules.num_candidates)
    return Candidates(log_prob_BC, index_BC // vocab_size, index_BC % vocab_size)


def _force(log_probs_BWV: Tensor, forced_B: Tensor) -> Tensor:
    """Leave no other token than the forced one, where there is one."""
    is_other_BV = torch.arange(log_probs_BWV.shape[-1], device=forced_B.device) != forced_B[:, None]
    hides_BV = is_other_BV & (forced_B != PAD)[:, None]
    return log_probs_BWV.masked_fill_(hides_BV[:, None], -math.inf)


def largest(x_BWV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest numbers of each sentence (all, if there are fewer), and where in W·V.

    Exact: whatever is among the `count` largest lies in one of the `count` groups with the largest
    maxima. Finding maxima is several times as fast as `topk` over everything.
    """
    beam_size, vocab_size = x_BWV.shape[1:]
    in_groups = vocab_size - vocab_size % GROUP
    maxima_BWG = x_BWV[..., :in_groups].unflatten(-1, (-1, GROUP)).amax(dim=-1)
    num_groups = maxima_BWG.shape[-1]
    _, group_BC = maxima_BWG.flatten(1).topk(min(count, beam_size * num_groups))
    place_V, beam_W = (torch.arange(n, device=x_BWV.device) for n in (vocab_size, beam_size))
    first_BC = group_BC // num_groups * vocab_size + group_BC % num_groups * GROUP
    within_BN = (first_BC[..., None] + place_V[:GROUP]).flatten(1)
    rest_WN = beam_W[:, None] * vocab_size + place_V[in_groups:]
    index_BN = torch.cat([within_BN, rest_WN.flatten().expand(len(x_BWV), -1)], dim=1)
    value_BC, order_BC = (
        x_BWV.flatten(1).gather(1, index_BN).topk(min(count, beam_size * vocab_size))
    )
    return value_BC, index_BN.gather(1, order_BC)


def _draw(
    log_probs_BWV: Tensor, log_prob_BW: Tensor, uniform_BW: Tensor, config: SearchConfig
) -> Candidates:
    """Draw a token per beam by inverting the distribution function: one random number each."""
    scaled_BWV = log_probs_BWV.double() / config.temperature
    if 0 < config.top_k < scaled_BWV.shape[-1]:
        least_BW1 = scaled_BWV.topk(config.top_k).values[..., -1:]
        scaled_BWV = scaled_BWV.masked_fill(scaled_BWV < least_BW1, -math.inf)
    up_to_BWV = scaled_BWV.softmax(dim=-1).cumsum(dim=-1)
    sought_BW1 = uniform_BW[..., None].to(up_to_BWV) * up_to_BWV[..., -1:]
    found_BW1 = torch.searchsorted(up_to_BWV, sought_BW1, right=True)
    token_BW1 = found_BW1.clamp(max=log_probs_BWV.shape[-1] - 1)  # past the end where it is NaN
    log_prob_BC = log_prob_BW + log_probs_BWV.gather(-1, token_BW1)[..., 0]
    parent_BC = torch.arange(log_prob_BW.shape[1], device=log_prob_BW.device)
    return Candidates(log_prob_BC, parent_BC.expand_as(log_prob_BC), token_BW1[..., 0])
