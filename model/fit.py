"""The loop of training: goes on from where it was, saves, measures, and guards against divergence.

What a run has been through is its `History`, recorded in every checkpoint and a function of the
plan alone: so patience, the best checkpoints and the count of bad steps survive kills and resumes
on any number of workers.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from model import checkpoint
from model.checkpoint import JSON, Checkpoint, load_optimizer, load_weights
from model.config import TrainConfig
from model.meter import Meter
from model.trainer import Asks, MicroBatch, Step, Trainer
from model.transformer import Transformer
from model.workers import Workers

SKIPPED_FILE = "skipped.json"
"""In the run's folder: the steps whose data is never trained on, since training diverged there."""


class TrainingError(Exception):
    """Training cannot go on; the message says why and what to do."""


@dataclass(frozen=True)
class Data:
    """What to train and measure on."""

    steps: Callable[[int], Iterable[Step]]
    """Given the last step done, yields those that follow, without end."""
    dev: Sequence[MicroBatch] = ()
    """The whole dev set on every worker; each computes its share. May be empty."""
    largest: MicroBatch | None = None
    """What needs the most memory, tried before anything else."""


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
    asks: Callable[[], Asks] = Asks
    """Called before each step: what this worker wants all of them to do after it."""


class Event(NamedTuple):
    """Something worth showing: the caller's log and plots are made of these."""

    step: int
    kind: str
    """`train`, `dev`, `checkpoint`, `resumed`, `skipped`, `rolled_back`, `early_stop` or `stopped`."""
    metrics: Mapping[str, float]


Report: TypeAlias = Callable[[Event], None]


class Scored(NamedTuple):
    """A checkpoint and its loss on the dev set."""

    dev_loss: float
    step: int


@dataclass(frozen=True)
class History:
    """What a run has been through up to a step."""

    step: int = 0
    num_bad_steps: int = 0
    """The last so many steps had no finite gradient."""
    skipped: tuple[int, int] | None = None
    """First and last step that a rollback took out."""
    lowest_dev_loss: float | None = None
    num_stale: int = 0
    """Measurements since the lowest."""
    best: tuple[Scored, ...] = ()
    """The checkpoints of the lowest dev loss, best first."""

    @classmethod
    def of(cls, found: Checkpoint) -> "History":
        """Read what a checkpoint recorded."""
        recorded: Any = found.meta["history"]
        return cls(
            **recorded
            | {
                "skipped": recorded["skipped"] and tuple(recorded["skipped"]),
                "best": tuple(Scored(*scored) for scored in recorded["best"]),
            }
        )

    def is_over(self, config: TrainConfig) -> bool:
        """Whether there is nothing left to train."""
        return self.step >= config.max_steps or self.has_stopped_early(config)

    def has_stopped_early(self, config: TrainConfig) -> bool:
        """Whether patience with the dev loss is at its end."""
        return 0 < config.patience <= self.num_stale

    def skips(self, step: int) -> bool:
        """Whether a rollback took out the step."""
        return self.skipped is not None and self.skipped[0] <= step <= self.skipped[1]

    def measured(self, dev_loss: float) -> "History":
        """Take note of a measurement."""
        if self.lowest_dev_loss is None or dev_loss < self.lowest_dev_loss:
            return replace(self, lowest_dev_loss=dev_loss, num_stale=0)
        return replace(self, num_stale=self.num_stale + 1)

    def saved(self, dev_loss: float, keep: int) -> "History":
        """Take note that the step's checkpoint was measured as well."""
        if not math.isfinite(dev_loss):
            return self
        return replace(self, best=tuple(sorted([*self.best, Scored(dev_loss, self.step)])[:keep]))

    def kept_steps(self, config: TrainConfig) -> list[int]:
        """List the steps whose checkpoints a run keeps that has come to its last step here."""
        newest = regular_steps(config, self.step)[-config.keep_checkpoints :]
        return sorted({*newest, *(scored.step for scored in self.best)})


def regular_steps(config: TrainConfig, last: int) -> list[int]:
    """List the steps at which a run up to `last` saves, however often it was interrupted."""
    every = config.checkpoint_every_steps
    return [*range(every, last, every), last]


def fit(
    model: Transformer, data: Data, run: Run, workers: Workers, on_event: Callable[[Event], None]
) -> History:
    """Train up to `max_steps`, from the newest checkpoint that verifies, if there is one.

    The model must be on its device, in fp32. All workers call this with the same arguments, but
    for their own shares of `data`; afterwards all hold the same weights. `on_event` is called on
    the first worker only. Torch's global random state is not kept.

    Returns:
        What the run has been through. It is not over if a worker asked to stop; a checkpoint of
        its last step is there in any case.

    Raises:
        CheckpointError: On all workers, if the newest checkpoint is of another run.
        TrainingError: On all workers, if memory does not suffice, or training diverges again
            after a rollback, or before there is a checkpoint to roll back to.
        OSError: If a checkpoint cannot be written; the ones before it stay.
        ValueError: If the number of workers is not a power of two, or above K.
    """
    trainer = Trainer(model, run.config, run.seed, workers)
    if data.largest and not trainer.try_out(data.largest):
        raise TrainingError(_too_large(data.largest))
    loop = _Loop(trainer, data, run, on_event if workers.rank == 0 else _say_nothing)
    history = loop.train()
    while history.num_bad_steps >= run.config.max_bad_steps:
        loop.roll_back(history)
        history = loop.train()
    workers.wait_for_all()
    return history


def _say_nothing(event: Event) -> None:
    """Drop an event: only the first worker reports."""


def _too_large(micro_batch: MicroBatch) -> str:
    rows, src = micro_batch.src_BS.shape
    tgt = micro_batch.tgt_out_BT.shape[1]
    return (
        f"The largest micro-batch must fit a worker's memory, but {rows} pairs of {src} source and "
        f"{tgt} target tokens do not. Lower `train.tokens_per_micro_batch` and raise "
        "`train.micro_batches_per_step` as much, or lower `tokenize.max_pieces`."
    )


class _Loop:
    """A run on one worker."""

    def __init__(self, trainer: Trainer, data: Data, run: Run, report: Report) -> None:
        self.trainer, self.data, self.run, self.report = trainer, data, run, report
        self.config, self.workers = run.config, trainer.workers
        self.meter = Meter(trainer)

    def train(self) -> History:
        """Go on until the run is over, is asked to stop, or has too many bad steps in a row."""
        history = self._resume()
        if history.is_over(self.config):
            return history
        left = self.config.max_steps - history.step
        self.meter.start_clock()
        for step in islice(self.data.steps(history.step), left):
            assert step.number == history.step + 1, "the plan and the trainer disagree"
            history, asked = self._take(step, history)
            if history.num_bad_steps >= self.config.max_bad_steps:
                return history
            history = self._report_and_save(history, asked)
            if asked.stop or history.is_over(self.config):
                break
            self.meter.start_clock()
        else:
            raise AssertionError("the plan ended before training did")
        if not history.is_over(self.config):
            self.report(Event(history.step, "stopped", {}))
        return history

    def roll_back(self, history: History) -> None:
        """Take out all steps since the last checkpoint before the bad ones, for good."""
        self.workers.ask_first(lambda: self._skip_since_checkpoint(history))

    def _resume(self) -> History:
        """Give every worker the state of the newest checkpoint, or the first one's initial one."""
        history = self.workers.ask_first(self._load)
        for tensor in self.trainer.optimizer.whole_state():
            self.workers.copy_from_first(tensor)
        if history.step:
            self.report(Event(history.step, "resumed", {}))
        if history.skipped and history.step == history.skipped[0] - 1:
            first, last = history.skipped
            self.report(Event(history.step, "rolled_back", {"skipped_to": last, "skipped_from": first}))  # fmt: skip
        return history

    def _load(self) -> History:
        folder, last = self.run.folder, self.config.max_steps
        skipped = _read_skipped(folder)
        _remove_from_before(skipped, folder)
        found = checkpoint.newest(folder, at_most=last)
        if not found:
            return History(skipped=skipped)
        checkpoint.require(found, **self._recorded())
        if not found.has_optimizer and not History.of(found).is_over(self.config):
            found = checkpoint.newest(folder, at_most=last, with_optimizer=True)
            if not found:
                return History(skipped=skipped)
        moments = load_optimizer(found.path) if found.has_optimizer else {}
        self.trainer.optimizer.load(load_weights(found.path), moments)
        return replace(History.of(found), skipped=skipped)

    def _take(self, step: Step, history: History) -> tuple[History, Asks]:
        """Make one step, or pass over one that was taken out."""
        history = replace(history, step=step.number)
        if history.skips(step.number):
            self.report(Event(step.number, "skipped", {"skipped_steps": 1}))
            return history, Asks()
        update = self.trainer.take(step, self.run.asks())
        self.meter.add(update)
        if update.skipped:
            self.report(Event(step.number, "skipped", {"skipped_steps": 1}))
        bad = history.num_bad_steps + 1 if update.skipped else 0
        return replace(history, num_bad_steps=bad), update.asked

    def _report_and_save(self, history: History, asked: Asks) -> History:
        """Do what is due after a step. Reports come first: a checkpoint vouches for those before.

        Windows of the log end at checkpoints, so that a resumed run reports what an uninterrupted
        one does. While the first worker saves, the others go on until they need its gradients.
        """
        config, step = self.config, history.step
        is_last, is_regular = step == config.max_steps, step % config.checkpoint_every_steps == 0
        save_now = is_last or is_regular or any(asked)
        if save_now or step % self.run.log_every_steps == 0:
            self.report(Event(step, "train", self.meter.read()))
        if self.data.dev and (is_last or step % config.dev_every_steps == 0):
            history = self._measure(history, is_saved=is_regular)
        if save_now or history.has_stopped_early(config):
            self._save(history)
        return history

    def _measure(self, history: History, *, is_saved: bool) -> History:
        """Measure on the dev set. What is measured only since training ends here makes no history.

        For if `max_steps` is raised, the longer run must equal one that was as long at once.
        """
        metrics = self.trainer.measure(self.data.dev)
        self.report(Event(history.step, "dev", metrics))
        if history.step % self.config.dev_every_steps:
            return history
        history = history.measured(metrics["dev_loss"])
        if is_saved:
            history = history.saved(metrics["dev_loss"], self.config.keep_best_checkpoints)
        if history.has_stopped_early(self.config):
            self.report(Event(history.step, "early_stop", {}))
        return history

    def _save(self, history: History) -> None:
        if self.workers.rank != 0:
            return
        folder, optimizer = self.run.folder, self.trainer.optimizer
        meta = {**self._recorded(), "history": asdict(history)}
        checkpoint.save(folder, history.step, optimizer.named, optimizer.moments(), meta)
        checkpoint.prune(folder, history.kept_steps(self.config), at_most=history.step)
        self.report(Event(history.step, "checkpoint", {}))

    def _recorded(self) -> dict[str, JSON]:
        return {**self.run.meta, "parameters": self.trainer.optimizer.layout}

    def _skip_since_checkpoint(self, history: History) -> None:
        """Write down which steps to skip.

        Raises:
            TrainingError: If that was done before, or there is nothing to roll back to.
        """
        bad = f"Training has diverged: the gradients of {history.num_bad_steps} steps in a row, up to step {history.step}, are not finite"  # fmt: skip
        mend = "Lower `train.lr_scale`, raise `train.warmup_steps`, or set `train.clip_norm`."
        if history.skipped:
            first, last = history.skipped
            raise TrainingError(f"{bad}, though steps {first} to {last} were skipped. {mend}")
        before = history.step - history.num_bad_steps
        found = checkpoint.newest(self.run.folder, at_most=before, with_optimizer=True)
        if not found:
            raise TrainingError(f"{bad}, and there is no checkpoint before them. {mend}")
        checkpoint.write_json(self.run.folder / SKIPPED_FILE, [found.step + 1, history.step])


def _read_skipped(folder: Path) -> tuple[int, int] | None:
    path = folder / SKIPPED_FILE
    if not path.exists():
        return None
    first, last = json.loads(path.read_text(encoding="utf-8"))
    return first, last


def _remove_from_before(skipped: tuple[int, int] | None, folder: Path) -> None:
    """Remove checkpoints that trained on what is to be skipped: they are not of this history."""
    if not skipped:
        return
    while found := checkpoint.newest(folder):
        if found.step < skipped[0] or History.of(found).skipped == skipped:
            return
        shutil.rmtree(found.path)
