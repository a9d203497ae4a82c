"""Training: one optimizer step over any number of workers, and the loop around it.

A step is K micro-batches. Worker w of W holds the w-th aligned block of K / W of them. Gradients
are summed pairwise in one binary tree over all K, then divided by the step's target tokens, so the
sum has the same bits for 1, 2, 4, … K workers. Every worker then makes the same Adam update.
Dropout is seeded per micro-batch. So a run's state is its weights, its moments and its step.

Axes: B sentences, S source, T target positions, D width, P all parameters in one row.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from model.checkpoint import (
    JSON,
    load_optimizer,
    load_weights,
    newest,
    prune,
    require,
    save,
)
from model.config import PAD, TrainConfig
from model.loss import label_smoothed_cross_entropy
from model.optimizer import FlatAdam
from model.schedule import learning_rate
from model.transformer import Transformer
from model.workers import Workers


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


@dataclass(frozen=True)
class Data:
    """What to train and measure on."""

    steps: Callable[[int], Iterable[Step]]
    """Given the last step done, yields those that follow, without end."""
    dev: Sequence[MicroBatch] = ()
    """The whole dev set on every worker; each computes its share. May be empty."""


@dataclass(frozen=True)
class Run:
    """How to train, and where checkpoints are."""

    config: TrainConfig
    seed: int
    """For dropout."""
    folder: Path
    """Only the first worker reads and writes here."""
    meta: Mapping[str, JSON]
    """Recorded in every checkpoint. A checkpoint that recorded something else is refused."""
    log_every_steps: int = 50


class Event(NamedTuple):
    """Something worth showing: the caller's log and plots are made of these."""

    step: int
    kind: str
    """`train`, `dev`, `checkpoint`, `resumed` or `skipped`."""
    metrics: Mapping[str, float]


def fit(
    model: Transformer,
    data: Data,
    run: Run,
    workers: Workers,
    on_event: Callable[[Event], None],
) -> int:
    """Train up to `max_steps`, from the newest checkpoint that verifies, if there is one.

    The model must be on its device, in fp32. All workers call this with the same arguments, but
    for their own shares of `data`; afterwards all hold the same weights. `on_event` is called on
    the first worker only. Torch's global random state is not kept.

    Returns:
        The last step, `max_steps`.

    Raises:
        CheckpointError: On all workers, if the newest checkpoint is of another run.
        OSError: If a checkpoint cannot be written; the ones before it stay.
        ValueError: If the number of workers is not a power of two, or above K.
    """
    trainer = Trainer(model, run.config, run.seed, workers)
    report = on_event if workers.rank == 0 else _say_nothing
    last_step = run.config.max_steps
    done = _resume(trainer, run)
    if done:
        report(Event(done, "resumed", {}))
    meter = Meter(workers)
    for step in islice(data.steps(done), last_step - done):
        assert step.number == done + 1, "the plan and the trainer disagree about the position"
        update = trainer.take(step)
        meter.add(update)
        done = step.number
        if update.skipped:
            report(Event(done, "skipped", {"skipped_steps": 1}))
        _report_and_save(trainer, data, run, Milestone(done, meter, report))
        meter.start_clock()
    assert done == last_step, "the plan ended before training did"
    workers.wait_for_all()
    return done


def _say_nothing(event: Event) -> None:
    """Drop an event: only the first worker reports."""


class Milestone(NamedTuple):
    """A step that is done."""

    step: int
    meter: "Meter"
    report: Callable[[Event], None]


def _report_and_save(trainer: "Trainer", data: Data, run: Run, at: Milestone) -> None:
    """Do what is due after a step. Reports come first: a checkpoint vouches for those before it.

    Windows of the log end at checkpoints, so that a resumed run reports what an uninterrupted one
    does. While the first worker saves, the others go on until they need its gradients.
    """
    config, last = run.config, at.step == run.config.max_steps
    save_now = last or at.step % config.checkpoint_every_steps == 0
    if save_now or at.step % run.log_every_steps == 0:
        at.report(Event(at.step, "train", at.meter.read()))
    if data.dev and (last or at.step % config.dev_every_steps == 0):
        at.report(Event(at.step, "dev", trainer.measure(data.dev)))
    if save_now and trainer.workers.rank == 0:
        weights, moments = trainer.optimizer.named, trainer.optimizer.moments()
        save(run.folder, at.step, weights, moments, _recorded(trainer, run))
        prune(run.folder, config.keep_checkpoints, at_most=at.step)
        at.report(Event(at.step, "checkpoint", {}))


def _resume(trainer: "Trainer", run: Run) -> int:
    """Give every worker the state of the newest checkpoint; return its step, or 0.

    Without a checkpoint, every worker gets the first one's initial weights.
    """
    step = trainer.workers.ask_first(lambda: _load(trainer, run))
    for tensor in trainer.optimizer.whole_state():
        trainer.workers.copy_from_first(tensor)
    return step


def _load(trainer: "Trainer", run: Run) -> int:
    last_step = run.config.max_steps
    found = newest(run.folder, at_most=last_step)
    if found and found.step < last_step and not found.has_optimizer:
        found = newest(run.folder, at_most=last_step, with_optimizer=True)
    if not found:
        return 0
    require(found, **_recorded(trainer, run))
    moments = load_optimizer(found.path) if found.has_optimizer else {}
    trainer.optimizer.load(load_weights(found.path), moments)
    return found.step


def _recorded(trainer: "Trainer", run: Run) -> dict[str, JSON]:
    return {**run.meta, "parameters": trainer.optimizer.layout}


class Update(NamedTuple):
    """What one worker knows of a step it took."""

    sums: Tensor
    """Per micro-batch of this worker: the columns of `Trainer.forward`."""
    learning_rate: float
    gradient_norm: float
    """Before clipping. Not finite if the step was skipped."""

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

    def take(self, step: Step) -> Update:
        """Make one optimizer step; leave everything as it is if the gradient is not finite."""
        gradient_P = self.optimizer.gradient_P
        sums = self._sum_gradients(step)
        self.workers.sum_in_tree(gradient_P)
        gradient_P.mul_(1 / step.num_target_tokens)
        norm = torch.linalg.vector_norm(gradient_P).item()
        config, dim = self.config, self.model.config.dim
        rate = learning_rate(step.number, dim, config.warmup_steps, config.lr_scale)
        if math.isfinite(norm):
            if 0 < config.clip_norm < norm:
                gradient_P.mul_(config.clip_norm / norm)
            self.optimizer.update(rate)
        return Update(sums, rate, norm)

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
        """Sum over a micro-batch: loss, negative log-likelihood, target tokens, tokens, positions.

        In fp64. The loss is differentiable. Tokens are those of both sides, without padding;
        positions include it.
        """
        device = self.optimizer.values_P.device
        src_BS, tgt_in_BT, tgt_out_BT = (ids.to(device, non_blocking=True) for ids in micro_batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            hidden_BTD = self.model(src_BS, tgt_in_BT)
            loss_sum, nll_sum = label_smoothed_cross_entropy(
                hidden_BTD.flatten(0, 1),
                self.model.embedding.weight,
                tgt_out_BT.flatten(),
                self.config.label_smoothing,
            )
        num_target = (tgt_out_BT != PAD).sum()
        num_tokens = num_target + (src_BS != PAD).sum()
        num_positions = torch.tensor(src_BS.numel() + tgt_out_BT.numel(), device=device)
        sums = (loss_sum, nll_sum, num_target, num_tokens, num_positions)
        return torch.stack([value.double() for value in sums])

    def measure(self, dev: Sequence[MicroBatch]) -> dict[str, float]:
        """Measure the loss on the dev set: its batches are dealt over workers, summed in order."""
        sums = torch.zeros(len(dev), 5, dtype=torch.float64, device=self.optimizer.values_P.device)
        self.model.eval()
        with torch.no_grad():
            for index in range(self.workers.rank, len(dev), self.workers.size):
                sums[index] = self.forward(dev[index])
        # All but one worker's row of a batch are 0, so this sum is exact.
        loss, nll, num_target, _, _ = self.workers.gather(sums).sum(0).sum(0).tolist()
        return {
            "dev_loss": loss / num_target,
            "dev_nll": nll / num_target,
            "dev_perplexity": _exp(nll / num_target),
        }


class Meter:
    """What the log shows of the steps since it was last read."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._start_anew()

    def start_clock(self) -> None:
        """Start the time of a step: what was done since the last one does not count."""
        self.started_at_s = perf_counter()

    def add(self, update: Update) -> None:
        """Count a step and the time it took."""
        self.updates.append(update)
        self.took_s += perf_counter() - self.started_at_s

    def read(self) -> dict[str, float]:
        """Sum over steps, workers and micro-batches in the order of the plan, and start anew.

        Values are per target token, of the steps that were not skipped. Workers meet here.
        """
        taken = [update for update in self.updates if not update.skipped]
        metrics = {"skipped_steps": float(len(self.updates) - len(taken))}
        if taken:
            sums = self.workers.gather(torch.stack([update.sums for update in taken]))
            in_order = sums.transpose(0, 1).flatten(0, 2)
            loss, nll, num_target, num_tokens, num_positions = in_order.sum(0).tolist()
            metrics |= {
                "loss": loss / num_target,
                "nll": nll / num_target,
                "learning_rate": taken[-1].learning_rate,
                "gradient_norm": taken[-1].gradient_norm,
                "padding_share": 1 - num_tokens / num_positions,
                "tokens_per_s": num_tokens / self.took_s,
            }
        self._start_anew()
        return metrics

    def _start_anew(self) -> None:
        self.updates: list[Update] = []
        self.took_s = 0.0
        self.start_clock()


def derive_seed(*values: int) -> int:
    """Mix integers to 63 bits; any change of any of them changes about half of the bits.

    The mixing is SplitMix64's (Steele et al., 2014).
    """
    mixed = 0
    for value in values:
        mixed = (mixed + value + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return mixed >> 1


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # the largest that a float holds is about e^709
