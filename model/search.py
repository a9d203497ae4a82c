"""Beam search (Vaswani et al., 2017, section 6.1; length penalty of Wu et al., 2016), and sampling.

Axes: B sentences still being searched, S source positions, W beams, T tokens so far, C candidates
for the next beams, N hypotheses that end.

What a sentence gets depends on that sentence alone, not on the others in its batch or on padding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.alignment import align
from model.candidates import Candidates, Rules, continuations, draw_uniform
from model.config import BOS, EOS, PAD, SearchConfig
from model.memory import DecodingState, keep_rows
from model.transformer import Transformer, pad_sequences


class Hypothesis(NamedTuple):
    """A translation."""

    ids: tuple[int, ...]
    """Token ids without BOS and EOS."""
    score: float
    """`log_prob` divided by the length penalty: what hypotheses are ranked by."""
    log_prob: float
    """Sum over tokens in nats; EOS included, but where the longest allowed length cut it off."""
    alignment: tuple[int, ...] = ()
    """For each token the source position it looks at most, EOS included; with `align_layer` only."""


class Extras(NamedTuple):
    """What a batch may bring besides its sources, one per sentence."""

    prefixes: Sequence[Sequence[int]] | None = None
    """Token ids that its translations must begin with."""
    numbers: Sequence[int] | None = None
    """Its number in the whole text, which samples depend on. None: its row in the batch."""
    is_stopped: Callable[[], bool] | None = None
    """Asked before each step: True ends the search of the whole batch with `Stopped`."""


class Stopped(Exception):  # noqa: N818 - what was asked for, not a failure
    """The search was ended from outside, without a result."""


NO_EXTRAS = Extras()


def beam_search(
    model: Transformer, src_BS: Tensor, config: SearchConfig, extras: Extras = NO_EXTRAS
) -> list[list[Hypothesis]]:
    """Translate a batch of sentences; per sentence at most `num_best` hypotheses, best first.

    A step follows the `beam_size` likeliest prefixes; one that ends among these is a hypothesis.
    A sentence is done when `beam_size` hypotheses have ended (so one beam is greedy search), when
    no prefix can still come among the `num_best`, or at its longest allowed length, where the
    prefixes count as hypotheses too. PAD and BOS are never generated.

    With `sample`, `num_best` hypotheses are drawn independently; the same may come twice.

    Raises:
        ValueError: If the model is in training mode, its probabilities are not numbers, a prefix
            is longer than its translation may be, or `align_layer` is not one of the decoder's.
        Stopped: If `extras` says so.
    """
    if model.training:
        raise ValueError("The model must be in evaluation mode, but is training: call eval().")
    with torch.inference_mode():
        search = Search(model, src_BS, config, extras)
        while search.sentences:
            if extras.is_stopped and extras.is_stopped():
                raise Stopped
            search.step()
        found = [_best(hypotheses, config.num_best) for hypotheses in search.found]
        if not config.align_layer:
            return found
        aligned = align(
            model, src_BS, [[h.ids for h in some] for some in found], config.align_layer
        )
    return [
        [h._replace(alignment=tuple(places)) for h, places in zip(some, rows, strict=True)]
        for some, rows in zip(found, aligned, strict=True)
    ]


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


class Search:
    """A search under way. All prefixes have the same length; done sentences leave."""

    def __init__(
        self, model: Transformer, src_BS: Tensor, config: SearchConfig, extras: Extras
    ) -> None:
        self.model, self.config = model, config
        self.beam_size = config.num_best if config.sample else config.beam_size
        self.found: list[list[Hypothesis]] = [[] for _ in src_BS]
        self.sentences = list(range(len(src_BS)))
        self.numbers = self.sentences if extras.numbers is None else extras.numbers
        longest_B = (src_BS != PAD).sum(dim=1) + config.max_extra_tokens
        self.max_lengths: list[int] = longest_B.clamp(1, model.config.max_positions).tolist()
        self.forced_BT = self._check_prefixes(extras.prefixes or [()] * len(src_BS)).to(src_BS)
        self.state: DecodingState = model.start(model.encode(src_BS))
        num_first = self.beam_size if config.sample else 1
        self.beams = _first_beams((len(src_BS), num_first), like=model.embedding.weight)

    def step(self) -> None:
        """Lengthen all prefixes by a token, note those that end, drop sentences that are done."""
        beams = self.beams
        hidden_BWD = self.model.step(beams.token_BW, beams.parent_BW, self.state)
        candidates = continuations(self.model, hidden_BWD, beams.log_prob_BW, self._rules())
        self._collect_ended(candidates)
        self.beams = _continue(beams, candidates, self.beam_size)
        self._collect_longest()
        self._drop_done()

    def _check_prefixes(self, prefixes: Sequence[Sequence[int]]) -> Tensor:
        for number, (prefix, most) in enumerate(zip(prefixes, self.max_lengths, strict=True)):
            if len(prefix) > most:
                raise ValueError(
                    f"A prefix must have at most as many tokens as its translation ({most}), but "
                    f"that of sentence {number} has {len(prefix)}: raise `max_extra_tokens`."
                )
            if not {PAD, BOS, EOS}.isdisjoint(prefix):
                raise ValueError(
                    f"A prefix must hold tokens of a translation only, but that of sentence "
                    f"{number} holds padding, begin or end: leave them out."
                )
        return pad_sequences(prefixes)

    def _rules(self) -> Rules:
        place, forced_B, uniform_BW = self.beams.prefix_BWT.shape[2], None, None
        if place < self.forced_BT.shape[1]:
            forced_B = self.forced_BT[:, place]
        if self.config.sample:
            numbers = [self.numbers[sentence] for sentence in self.sentences]
            uniform_BW = draw_uniform(self.config.seed, numbers, self.beam_size, place)
        return Rules(2 * self.beam_size, self.config, forced_B, uniform_BW)

    def _collect_ended(self, candidates: Candidates) -> None:
        """Note the hypotheses that end with EOS among the best `beam_size` candidates."""
        log_prob_BW, parent_BW, token_BW = (part[:, : self.beam_size] for part in candidates)
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
        best_B = self.beams.log_prob_BW.amax(dim=1).tolist()
        is_done = [self._is_done(row, best) for row, best in enumerate(best_B)]
        if not any(is_done):
            return
        rows = _fill_gaps(is_done)
        self.sentences = [self.sentences[row] for row in rows]
        rows_B = torch.tensor(rows, dtype=torch.long, device=self.beams.token_BW.device)
        self.beams.keep(rows_B)
        self.state.keep(rows_B)
        self.forced_BT = keep_rows(self.forced_BT, rows_B)

    def _is_done(self, row: int, best_log_prob: float) -> bool:
        sentence, length = self.sentences[row], self.beams.prefix_BWT.shape[2]
        found, longest = self.found[sentence], self.max_lengths[sentence]
        if math.isnan(best_log_prob):
            raise ValueError(
                "Every log-probability must be a number, but the model gives NaN: "
                "its weights are damaged, or its training diverged."
            )
        if length >= longest or len(found) >= self.beam_size:
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


def _fill_gaps(is_done: list[bool]) -> list[int]:
    """Rows that go on; the last of them take the places of those that are done, to move few."""
    rows = [row for row, done in enumerate(is_done) if not done]
    num_kept = len(rows)
    return [rows.pop() if is_done[place] else place for place in range(num_kept)]


def _first_beams(shape: tuple[int, int], like: Tensor) -> Beams:
    """Beams with the empty prefix. A search begins with one per sentence, a step makes more."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    log_prob_BW = torch.zeros(shape, dtype=dtype, device=like.device)
    token_BW = torch.full(shape, BOS, device=like.device)
    prefix_BWT = token_BW.new_empty((*shape, 0))
    parent_BW = torch.arange(shape[1], device=like.device).expand(shape)
    return Beams(prefix_BWT, log_prob_BW, token_BW, parent_BW)


def _continue(beams: Beams, candidates: Candidates, beam_size: int) -> Beams:
    """Take the best W candidates that do not end; where there are fewer, beams stay unused."""
    order_BC = (candidates.token_BC == EOS).to(torch.uint8).argsort(dim=1, stable=True)
    order_BW = order_BC[:, :beam_size]
    log_prob_BW, parent_BW, token_BW = (part.gather(1, order_BW) for part in candidates)
    log_prob_BW = log_prob_BW.masked_fill(token_BW == EOS, -math.inf)
    length = beams.prefix_BWT.shape[2]
    taken_BWT = beams.prefix_BWT.gather(1, parent_BW[..., None].expand(-1, -1, length))
    prefix_BWT = torch.cat([taken_BWT, token_BW[..., None]], dim=2)
    return Beams(prefix_BWT, log_prob_BW, token_BW, parent_BW)
