"""One optimizer step over any number of workers.

A step is K micro-batches. Worker w of W holds the w-th aligned block of K / W of them. Gradients
are summed pairwise in one binary tree over all K, then divided by the step's target tokens, so the
sum has the same bits for 1, 2, 4, … K workers. Every worker then makes the same Adam update.
Dropout is seeded per micro-batch. So a run's state is its weights, its moments and its step.

Axes: B sentences, S source, T target positions, D width, P all parameters in one row.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import PAD, TrainConfig
from model.flops import Flops
from model.loss import label_smoothed_cross_entropy
from model.optimizer import FlatAdam
from model.schedule import learning_rate
from model.seeds import derive_seed
from model.transformer import Transformer
from model.workers import Workers

COLUMNS = ("loss", "nll", "num_target_tokens", "num_tokens", "num_positions", "flops")
"""Sums over a micro-batch: smoothed loss and negative log-likelihood in nats; tokens of the target
and of both sides, without padding; positions of both sides, with it; operations, see `Flops`."""


class MicroBatch(NamedTuple):
    """Padded sentence pairs: int64 tensors on any device."""

    src_BS: Tensor
    tgt_in_BT: Tensor
    tgt_out_BT: Tensor


class Step(NamedTuple):
    """One worker's share of an optimizer step."""

    number: int
    """Steps count from 1."""
    first: int
    """Place in the step of this worker's first micro-batch."""
    micro_batches: Sequence[MicroBatch]
    """K / W of them, in order."""
    num_target_tokens: int
    """Of the whole step, all workers together."""


class Asks(NamedTuple):
    """What a worker asks all of them to do after a step; they do it if any one asks."""

    save: bool = False
    """Save a checkpoint: a machine is about to go."""
    stop: bool = False
    """Save a checkpoint and end."""


NO_ASKS = Asks()


class Update(NamedTuple):
    """What one worker knows of a step it took."""

    sums: Tensor
    """Per micro-batch of this worker: the columns of `Trainer.forward`."""
    learning_rate: float
    gradient_norm: float
    """Before clipping. Not finite if the step was skipped."""
    asked: Asks
    """The same on all workers."""

    @property
    def skipped(self) -> bool:
        """Whether the weights were left as they were."""
        return not math.isfinite(self.gradient_norm)


class Trainer:
    """A model, its optimizer, and one step of training."""

    def __init__(
        self, model: Transformer, config: TrainConfig, seed: int, workers: Workers
    ) -> None:
        most = config.micro_batches_per_step
        if workers.size.bit_count() != 1 or workers.size > most:
            raise ValueError(
                f"The number of workers must be a power of two and at most "
                f"`train.micro_batches_per_step` ({most}), but is {workers.size}."
            )
        self.model, self.config, self.seed, self.workers = model, config, seed, workers
        self.optimizer = FlatAdam(model, config)
        self._flops = Flops(model.config, model.embedding.num_embeddings)
        self._forward = torch.compile(model, dynamic=True) if config.compile else model

    def take(self, step: Step, asks: Asks = NO_ASKS) -> Update:
        """Make one optimizer step; leave everything as it is if the gradient is not finite."""
        gradient_P, asks_A = self.optimizer.gradient_P, self.optimizer.asks_A
        sums = self._sum_gradients(step)
        asks_A.copy_(torch.tensor(asks))
        self.workers.sum_in_tree(gradient_P)
        asked = Asks(*map(bool, asks_A.tolist()))
        asks_A.zero_()
        gradient_P.mul_(1 / step.num_target_tokens)
        norm = torch.linalg.vector_norm(gradient_P).item()
        config, dim = self.config, self.model.config.dim
        rate = learning_rate(step.number, dim, config.warmup_steps, config.lr_scale)
        if math.isfinite(norm):
            if 0 < config.clip_norm < norm:
                gradient_P.mul_(config.clip_norm / norm)
            self.optimizer.update(rate)
        return Update(sums, rate, norm, asked)

    def try_out(self, micro_batch: MicroBatch) -> bool:
        """Say whether all workers have the memory for a micro-batch; nothing else comes of it."""
        fits = torch.ones(1, device=self.optimizer.values_P.device)
        self.model.train()
        try:
            self.forward(micro_batch)[0].backward()
        except RuntimeError as error:  # torch.OutOfMemoryError is one; on CPUs it has no own kind
            if "memory" not in str(error):
                raise
            fits.zero_()
        return bool(self.workers.gather(fits).all())

    def _sum_gradients(self, step: Step) -> Tensor:
        """Sum this worker's gradients as a binary counter adds ones: always equal powers of two.

        Autograd adds to what is in the buffer, so the two leaves of a pair need no copy:
        (0 + g0) + g1 has the bits of g0 + g1, but that -0 becomes 0, on any number of workers.
        """
        share = len(step.micro_batches)
        assert share * self.workers.size == self.config.micro_batches_per_step
        assert share * self.workers.rank == step.first
        gradient_P, waiting = self.optimizer.gradient_P, list[Tensor]()
        gradient_P.zero_()
        self.model.train()
        sums = []
        for count, micro_batch in enumerate(step.micro_batches, 1):
            torch.manual_seed(derive_seed(self.seed, step.number, step.first + count - 1))
            micro_batch_sums = self.forward(micro_batch)
            micro_batch_sums[0].backward()
            sums.append(micro_batch_sums.detach())
            if count % 2 == 0:
                for _ in range(_trailing_zeros(count) - 1):
                    gradient_P.add_(waiting.pop())
                if count < share:
                    waiting.append(gradient_P.clone())
                    gradient_P.zero_()
        return torch.stack(sums)

    def forward(self, micro_batch: MicroBatch) -> Tensor:
        """Sum over a micro-batch: `COLUMNS`, in fp64. The loss is differentiable."""
        device = self.optimizer.values_P.device
        src_BS, tgt_in_BT, tgt_out_BT = (ids.to(device, non_blocking=True) for ids in micro_batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            hidden_BTD = self._forward(src_BS, tgt_in_BT)
            loss_sum, nll_sum = label_smoothed_cross_entropy(
                hidden_BTD.flatten(0, 1),
                self.model.embedding.weight,
                tgt_out_BT.flatten(),
                self.config.label_smoothing,
            )
        src_B, tgt_B = (src_BS != PAD).sum(1), (tgt_out_BT != PAD).sum(1)
        num_target, num_tokens = tgt_B.sum(), src_B.sum() + tgt_B.sum()
        num_positions = torch.tensor(src_BS.numel() + tgt_out_BT.numel(), device=device)
        sums = (loss_sum, nll_sum, num_target, num_tokens, num_positions)
        return torch.stack([value.double() for value in sums] + [self._flops.of(src_B, tgt_B)])

    def measure(self, dev: Sequence[MicroBatch]) -> dict[str, float]:
        """Measure the loss on the dev set: its batches are dealt over workers, summed in order."""
        sums = torch.zeros(
            len(dev), len(COLUMNS), dtype=torch.float64, device=self.optimizer.values_P.device
        )
        self.model.eval()
        with torch.no_grad():
            for index in range(self.workers.rank, len(dev), self.workers.size):
                sums[index] = self.forward(dev[index])
        # All but one worker's row of a batch are 0, so this sum is exact.
        loss, nll, num_target, *_ = self.workers.gather(sums).sum(0).sum(0).tolist()
        return {
            "dev_loss": loss / num_target,
            "dev_nll": nll / num_target,
            "dev_perplexity": perplexity(nll / num_target),
        }


def perplexity(nll: float) -> float:
    """Return e to the negative log-likelihood per token, in nats, or to the last that a float can."""
    return math.exp(min(nll, 700.0))


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1
