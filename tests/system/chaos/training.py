"""The training that the tests of this folder disturb, and what it leaves to compare.

A pair's pieces spell the number of its row. So workers note which rows a step holds from the very
tensors that the model is given.
"""

import contextlib
import functools
import json
import os
import signal
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import torch

import pipeline.train
from model.config import ModelConfig, TrainConfig
from model.trainer import Trainer
from pipeline.artifact import Identity, Root
from pipeline.batching import Plan
from pipeline.compute import InProcess
from pipeline.config import ComputeConfig
from pipeline.errors import TradukoError
from pipeline.events import EVENTS_FILE, read_events
from pipeline.job import Job

SEED = 7
FIRST_PIECE, NUM_PIECES = 4, 36
SHARD_SIZES = (300, 1, 499)
NUM_ROWS = sum(SHARD_SIZES)
MODEL = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    dropout=0.2, max_positions=16)  # fmt: skip
TRAIN = TrainConfig(max_steps=82, tokens_per_micro_batch=40, micro_batches_per_step=4, warmup_steps=8,
                    checkpoint_every_steps=5, dev_every_steps=10, keep_checkpoints=3)  # fmt: skip
CLOCKED = ("tokens_per_s", "flop_utilisation")
"""What depends on the machine's speed."""
SMALL_POOLS = functools.partial(Plan, rows_per_block=32, blocks_per_pool=4)
"""Seven pools an epoch."""


def make_tokens(folder):
    """What `tokenize` makes: pairs in several shards, and a dev set."""

    def build(out, work):
        start = 0
        for index, size in enumerate(SHARD_SIZES):
            _write_shard(out / f"part-{index:05d}.arrow", range(start, start + size))
            start += size
        (out / "dev").mkdir()
        _write_shard(out / "dev" / "dev.arrow", range(1000, 1012))
        return {"vocab_size": FIRST_PIECE + NUM_PIECES, "tokenizer": "a" * 64}

    return Root(folder, lambda line: None).produce(Identity("tokenize", 1, {}, ()), build)[0]


def _write_shard(path, rows):
    kind = pa.list_(pa.uint16())
    sides = [pa.array([_pieces(row, side) for row in rows], kind) for side in (0, 1)]
    batch = pa.record_batch(sides, ["src_ids", "tgt_ids"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _pieces(row, side):
    random = np.random.default_rng([row, side])
    rest = random.integers(NUM_PIECES, size=random.integers(7)).tolist()
    return [FIRST_PIECE + piece for piece in (*divmod(row, NUM_PIECES), *rest)]


def _rows(ids):
    """The rows whose pieces are in a padded array of one side."""
    first, second = (ids[:, :2] - FIRST_PIECE).unbind(1)
    return (first * NUM_PIECES + second).tolist()


@dataclass(frozen=True)
class Disturbance:
    """What befalls a run, `delay_s` after one of its workers has come to a step."""

    step: int
    kind: str
    """SIGKILL for the `worker`, for `all` workers together with their driver, or for the `driver`,
    whose workers go on for a while; `SIGINT` or `SIGTERM` for the driver; `stop`: the stop file
    appears; `slow`: nothing but `slow_s`."""
    rank: int = 0
    delay_s: float = 0.0
    slow_s: float = 0.0
    """How long each step takes from then on: for who must notice."""


class Place:
    """A run's folders."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.work, self.notes = self.folder / "work", self.folder / "notes"

    def make(self, disturbances=()):
        for folder in (self.work, self.notes):
            folder.mkdir(parents=True)
        (self.notes / "disturbances.json").write_text(json.dumps([asdict(d) for d in disturbances]))
        return self

    def job(self, compute, num_workers):
        """A job with a new, empty output folder, as each attempt has."""
        out = self.folder / f"attempt-{uuid.uuid4().hex}"
        out.mkdir()
        settings = ComputeConfig(num_workers=num_workers, log_every_steps=1)
        return Job(out, self.work, compute, settings, {}, _silent, _silent)

    def next_disturbance(self):
        """The first that has not happened yet, with its number; or None."""
        disturbances = json.loads((self.notes / "disturbances.json").read_text())
        number = self._num_happened()
        return (number, Disturbance(**disturbances[number])) if number < len(disturbances) else None

    def happened(self):
        """Those that have, in order."""
        disturbances = json.loads((self.notes / "disturbances.json").read_text())
        return [Disturbance(**found) for found in disturbances[: self._num_happened()]]

    def _num_happened(self):
        return len(list(self.notes.glob("happened-*")))


def _silent(*_):
    pass


def attempt(place, tokens, compute, num_workers=1, **changes):
    """Run the stage as one more attempt; give the folder that it filled."""
    job = place.job(compute, num_workers)
    pipeline.train.train(SEED, MODEL, replace(TRAIN, **changes), tokens, job)
    return job.out


class DriverKilledError(Exception):
    """In place of the end of the driver's process."""


class Alone(InProcess):
    """One worker, in this process."""

    def train(self, worker, task, group):
        torch.set_num_threads(group.num_threads)
        work(task, lambda: False)


def run_to_end(place, tokens, compute, num_workers=(1,)):
    """Run the same command until it ends well, the next time with the next number of workers."""
    numbers = iter(num_workers)
    number = next(numbers)
    while True:
        num_happened = len(place.happened())
        try:
            return attempt(place, tokens, compute, number)
        except (TradukoError, DriverKilledError):
            assert len(place.happened()) > num_happened, "it failed on its own"
        number = next(numbers, number)


def work(task, is_leaving):
    """The stage's own worker, with small pools, taking notes, and disturbed as its place says."""
    with watched(Place(Path(task.folder).parent)):
        pipeline.train.run_worker(task, is_leaving)


@contextlib.contextmanager
def watched(place):
    """Note what is trained on, before it is; let the next disturbance happen."""
    take, upcoming = Trainer.take, place.next_disturbance()
    notes = os.open(place.notes / f"rows-{uuid.uuid4().hex}", os.O_WRONLY | os.O_CREAT)
    has_begun = []

    def take_and_note(trainer, step, *asks):
        line = {"step": step.number, "first": step.first, "size": trainer.workers.size}
        line["rows"] = [_rows(micro_batch.src_BS) for micro_batch in step.micro_batches]
        assert line["rows"] == [_rows(micro_batch.tgt_out_BT) for micro_batch in step.micro_batches]
        os.write(notes, f"{json.dumps(line)}\n".encode())
        if upcoming and step.number >= upcoming[1].step:
            if not has_begun:
                has_begun.append(_let_happen(place, trainer.workers, *upcoming))
            time.sleep(upcoming[1].slow_s)
        return take(trainer, step, *asks)

    with (
        mock.patch.object(Trainer, "take", take_and_note),
        mock.patch.object(pipeline.train, "Plan", SMALL_POOLS),
    ):
        yield
    os.close(notes)


def _let_happen(place, workers, number, disturbance):
    driver = place.notes / "driver"

    def happen():
        (place.notes / f"happened-{number}").touch()
        if disturbance.kind == "stop":
            (place.work / pipeline.train.STOP_FILE).touch()
        elif disturbance.kind in ("worker", "all"):
            os.kill(os.getpid(), signal.SIGKILL)
        elif disturbance.kind in ("driver", "SIGINT", "SIGTERM") and driver.exists():
            name = "SIGKILL" if disturbance.kind == "driver" else disturbance.kind
            os.kill(int(driver.read_text()), signal.Signals[name])

    if workers.rank == disturbance.rank % workers.size:
        threading.Timer(disturbance.delay_s, happen).start()


def trained(place):
    """The rows of each micro-batch in the order of training, as (step, place in the step, rows).

    Steps that were taken more than once held the same each time.
    """
    found = {}
    for line in _notes(place):
        for index, rows in enumerate(line["rows"], line["first"]):
            assert found.setdefault((line["step"], index), rows) == rows, "a repeat is another"
    return [(*key, rows) for key, rows in sorted(found.items())]


def sizes(place):
    """Step → how many workers took it, at one time or another."""
    found = {}
    for line in _notes(place):
        found.setdefault(line["step"], set()).add(line["size"])
    return found


def _notes(place):
    for path in place.notes.glob("rows-*"):
        yield from (
            json.loads(line) for line in path.read_text().splitlines(True) if line[-1] == "\n"
        )


def result(place, out):
    """Everything that must be the same whatever happened: bytes of files, and events."""
    files = {path.relative_to(out): path.read_bytes() for path in out.glob("step-*/*")}
    last = place.work / f"step-{TRAIN.max_steps:08d}" / "optimizer.safetensors"
    return files, last.read_bytes(), events(out)


def draw(chance, kinds):
    """Twenty disturbances at random times within random steps."""
    steps = sorted(chance.sample(range(1, TRAIN.max_steps - 12), 20))
    return [
        Disturbance(step, chance.choice(kinds), chance.randrange(4), chance.uniform(0, 0.03))
        for step in steps
    ]


def events(folder):
    """What was measured, once each, in order. Resumes, stops and saves depend on what happened."""
    return [
        (event["step"], event["kind"], {**event["metrics"], **dict.fromkeys(CLOCKED, 0)})
        for event in read_events(folder / EVENTS_FILE)
        if event["kind"] in ("train", "dev")
    ]
