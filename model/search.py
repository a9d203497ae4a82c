"""Beam search (Vaswani et al., 2017, section 6.1; length penalty of Wu et al., 2016).

Axes: B sentences still being searched, S source positions, W beams, T tokens so far, V vocabulary,
C candidates for the next beams, best first.

What a sentence gets depends on that sentence alone, not on the others in its batch or on padding.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import BOS, EOS, PAD, SearchConfig
from model.transformer import DecodingState, Transformer

__all__ = ["Hypothesis", "SearchConfig", "beam_search", "length_penalty"]


class Hypothesis(NamedTuple):
    """A translation."""

    ids: tuple[int, ...]
    """Token ids without BOS and EOS."""
    score: float
    """`log_prob` divided by the length penalty: what hypotheses are ranked by."""
    log_prob: float
    """Sum over tokens in nats; EOS included, but where the longest allowed length cut it off."""


def beam_search(model: Transformer, src_BS: Tensor, config: SearchConfig) -> list[list[Hypothesis]]:
    """Translate a batch of sentences; per sentence at most `num_best` hypotheses, best first.

    A step follows the `beam_size` likeliest prefixes; one that ends among these is a hypothesis.
    A sentence is done when `beam_size` hypotheses have ended (so one beam is greedy search), when
    no prefix can still come among the `num_best`, or at its longest allowed length, where the
    prefixes count as hypotheses too. PAD and BOS are never generated.

    Raises:
        ValueError: If the model is in training mode, or its probabilities are not numbers.
    """
    if model.training:
        raise ValueError("The model must be in evaluation mode, but is training: call eval().")
    with torch.inference_mode():
        search = Search(model, src_BS, config)
        while search.sentences:
            search.step()
    return [_best(found, config.num_best) for found in search.found]


def length_penalty(length: int, exponent: float) -> float:
    """((5 + length) / 6)^exponent, of a length in tokens that counts EOS (Wu et al., eq. 14)."""
    return float(((5 + length) / 6) ** exponent)


@dataclass
class Beams:
    """The running prefixes of all sentences that are not done, likeliest first."""

    prefix_BWT: Tensor
    """Tokens after BOS."""
    log_prob_BW: Tensor
    """-inf marks an unused beam."""
    token_BW: Tensor
    """The last token, which the model has not read yet."""
    parent_BW: Tensor
    """Which of the beams before the last step each one continues."""

    def keep(self, rows_B: Tensor) -> None:
        """Drop all other sentences."""
        self.prefix_BWT, self.log_prob_BW = self.prefix_BWT[rows_B], self.log_prob_BW[rows_B]
        self.token_BW, self.parent_BW = self.token_BW[rows_B], self.parent_BW[rows_B]


class Candidates(NamedTuple):
    """The likeliest continuations of each sentence's prefixes, likeliest first."""

    log_prob_BC: Tensor
    parent_BC: Tensor
    token_BC: Tensor


class Search:
    """A beam search under way. All prefixes have the same length; done sentences leave."""

    def __init__(self, model: Transformer, src_BS: Tensor, config: SearchConfig) -> None:
        self.model, self.config = model, config
        self.found: list[list[Hypothesis]] = [[] for _ in src_BS]
        self.sentences = list(range(len(src_BS)))
        longest_B = (src_BS != PAD).sum(dim=1) + config.max_extra_tokens
        self.max_lengths: list[int] = longest_B.clamp(1, model.config.max_positions).tolist()
        self.state: DecodingState = model.start(model.encode(src_BS), config.beam_size)
        self.beams = _first_beams(len(src_BS), config.beam_size, model.embedding.weight)

    def step(self) -> None:
        """Lengthen all prefixes by a token, note those that end, drop sentences that are done."""
        beams = self.beams
        hidden_BWD = self.model.step(beams.token_BW, beams.parent_BW, self.state)
        candidates = _expand(self.model.logits(hidden_BWD), beams.log_prob_BW)
        self._collect_ended(candidates)
        self.beams = _continue(beams, candidates)
        self._collect_longest()
        self._drop_done()

    def _collect_ended(self, candidates: Candidates) -> None:
        """Note the hypotheses that end with EOS among the best `beam_size` candidates."""
        log_prob_BW, parent_BW, token_BW = (part[:, : self.config.beam_size] for part in candidates)
        ended_BW = (token_BW == EOS) & (log_prob_BW > -math.inf)
        rows_N, _ = ended_BW.nonzero(as_tuple=True)
        prefix_NT = self.beams.prefix_BWT[rows_N, parent_BW[ended_BW]]
        self._note(rows_N, prefix_NT, log_prob_BW[ended_BW], length=prefix_NT.shape[1] + 1)

    def _collect_longest(self) -> None:
        """Note the prefixes of sentences that have reached their longest allowed length."""
        length = self.beams.prefix_BWT.shape[2]
        rows = [row for row, s in enumerate(self.sentences) if self.max_lengths[s] == length]
        if not rows:
            return
        is_full_B = torch.zeros(len(self.sentences), dtype=torch.bool)
        is_full_B[rows] = True
        log_prob_BW = self.beams.log_prob_BW
        cut_BW = is_full_B.to(log_prob_BW.device)[:, None] & (log_prob_BW > -math.inf)
        rows_N, _ = cut_BW.nonzero(as_tuple=True)
        self._note(rows_N, self.beams.prefix_BWT[cut_BW], log_prob_BW[cut_BW], length)

    def _note(self, rows_N: Tensor, prefix_NT: Tensor, log_prob_N: Tensor, length: int) -> None:
        penalty = length_penalty(length, self.config.length_penalty)
        for row, ids, log_prob in zip(
            rows_N.tolist(), prefix_NT.tolist(), log_prob_N.tolist(), strict=True
        ):
            found = self.found[self.sentences[row]]
            found.append(Hypothesis(tuple(ids), log_prob / penalty, log_prob))

    def _drop_done(self) -> None:
        best_B = self.beams.log_prob_BW[:, 0].tolist()
        running = [row for row, best in enumerate(best_B) if not self._is_done(row, best)]
        if len(running) == len(self.sentences):
            return
        self.sentences = [self.sentences[row] for row in running]
        rows_B = torch.tensor(running, dtype=torch.long, device=self.beams.token_BW.device)
        self.beams.keep(rows_B)
        self.state.keep(rows_B)

    def _is_done(self, row: int, best_log_prob: float) -> bool:
        sentence, length = self.sentences[row], self.beams.prefix_BWT.shape[2]
        found, longest = self.found[sentence], self.max_lengths[sentence]
        if math.isnan(best_log_prob):
            raise ValueError(
                "Every log-probability must be a number, but the model gives NaN: "
                "its weights are damaged, or its training diverged."
            )
        if length >= longest or len(found) >= self.config.beam_size:
            return True
        if len(found) < self.config.num_best:
            return False
        worst_kept = _best(found, self.config.num_best)[-1].score
        return worst_kept >= self._bound(best_log_prob, length, longest)

    def _bound(self, log_prob: float, length: int, longest: int) -> float:
        """No prefix with at most this log-probability can end with a score above the result.

        Log-probabilities only fall, and are below 0, so the largest penalty is the kindest: that
        of the longest length, or with a negative exponent that of the next.
        """
        exponent = self.config.length_penalty
        penalties = (length_penalty(at, exponent) for at in (length + 1, longest))
        return max(log_prob / penalty for penalty in penalties)


def _best(found: list[Hypothesis], count: int) -> list[Hypothesis]:
    return sorted(found, key=lambda hypothesis: -hypothesis.score)[:count]


def _first_beams(num_sentences: int, beam_size: int, like: Tensor) -> Beams:
    """One beam per sentence has the empty prefix; the others are unused."""
    shape = (num_sentences, beam_size)
    log_prob_BW = torch.full(
        shape, -math.inf, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device
    )
    log_prob_BW[:, 0] = 0.0
    token_BW = torch.full(shape, BOS, device=like.device)
    prefix_BWT = token_BW.new_empty((*shape, 0))
    return Beams(prefix_BWT, log_prob_BW, token_BW, torch.zeros_like(token_BW))


def _expand(logits_BWV: Tensor, log_prob_BW: Tensor) -> Candidates:
    """Return the 2·W likeliest continuations: at least W of them do not end, as W at most do."""
    beam_size, vocab_size = logits_BWV.shape[1:]
    log_probs_BWV = logits_BWV.log_softmax(dim=-1, dtype=log_prob_BW.dtype)
    log_probs_BWV[..., [PAD, BOS]] = -math.inf
    total_BWV = log_probs_BWV.add_(log_prob_BW[..., None])
    log_prob_BC, index_BC = total_BWV.flatten(1).topk(2 * beam_size)
    return Candidates(log_prob_BC, index_BC // vocab_size, index_BC % vocab_size)


def _continue(beams: Beams, candidates: Candidates) -> Beams:
    """Take the best W candidates that do not end."""
    beam_size = beams.token_BW.shape[1]
    order_BC = (candidates.token_BC == EOS).to(torch.uint8).argsort(dim=1, stable=True)
    order_BW = order_BC[:, :beam_size]
    log_prob_BW, parent_BW, token_BW = (part.gather(1, order_BW) for part in candidates)
    length = beams.prefix_BWT.shape[2]
    taken_BWT = beams.prefix_BWT.gather(1, parent_BW[..., None].expand(-1, -1, length))
    prefix_BWT = torch.cat([taken_BWT, token_BW[..., None]], dim=2)
    return Beams(prefix_BWT, log_prob_BW, token_BW, parent_BW)
