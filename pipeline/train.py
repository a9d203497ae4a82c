"""Stage 6: shards of piece ids to checkpoints.

Out: `step-*/` of the last checkpoints (weights, what they were trained with), and `events.jsonl`.
Checkpoints live in the work folder, which outlives the artifact: more steps go on from there.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
import torch

from model import checkpoint
from model.config import ModelConfig, TrainConfig
from model.trainer import Data, MicroBatch, Run, Step, fit
from model.transformer import Transformer
from model.workers import Workers
from pipeline.artifact import Artifact, Json
from pipeline.batching import Int64s, Plan, TokenShards, TokenTable, dev_batches
from pipeline.compute import WorkerGroup
from pipeline.errors import ConfigError, TradukoError
from pipeline.events import EVENTS_FILE, EventLog, read_events
from pipeline.job import Job, Progress

POLL_S = 0.5


@dataclass(frozen=True)
class Task:
    """What every worker is told."""

    seed: int
    model: ModelConfig
    train: TrainConfig
    vocab_size: int
    tokenizer: str
    """Digest of the tokenizer: a checkpoint of another one is refused."""
    shards: tuple[str, ...]
    dev: tuple[str, ...]
    folder: str
    """Of checkpoints and events; all workers see it."""
    log_every_steps: int
    device: str = "cpu"


def train(seed: int, model: ModelConfig, config: TrainConfig, tokenize: Artifact, job: Job) -> Json:
    """Train to `max_steps`, from the newest checkpoint if an earlier attempt left one.

    Raises:
        ConfigError: If more workers are asked for than the cluster can run.
        TradukoError: If training failed, or a checkpoint is of something else.
    """
    _forget_what_has_gaps(job, config)
    group = _worker_group(job, config.micro_batches_per_step)
    task = Task(
        seed=seed,
        model=model,
        train=_keeping_enough(job.work, config),
        vocab_size=tokenize.stats["vocab_size"],
        tokenizer=tokenize.stats["tokenizer"],
        shards=tuple(map(str, tokenize.paths("part-*.arrow"))),
        dev=tuple(map(str, tokenize.paths("dev/*.arrow"))),
        folder=str(job.work),
        log_every_steps=job.settings.log_every_steps,
        device="cuda" if group.use_gpu else "cpu",
    )
    events = job.work / EVENTS_FILE
    with _following(events, config.max_steps, job.progress):
        job.compute.train(run_worker, task, group)
    steps = _publish(job.work, job.out, config)
    last = _last_metrics(events)
    workers = {"num_workers": group.num_workers, "device": task.device}
    return {"steps": config.max_steps, "checkpoints": steps, **workers, **last}


def run_worker(task: Task) -> None:
    """Train on one worker: the same on each, but for its share of every step.

    Raises:
        TradukoError: If the newest checkpoint is of another run.
    """
    workers = Workers.here()
    shards = TokenShards([load_tokens(Path(path)) for path in task.shards])
    torch.manual_seed(task.seed)
    model = Transformer(task.model, task.vocab_size).to(task.device)
    data = Data(lambda after: _steps(task, shards, workers, after), _dev(task))
    run = Run(
        config=task.train,
        seed=task.seed,
        folder=Path(task.folder),
        meta={"model": asdict(task.model), "tokenizer": task.tokenizer},
        log_every_steps=task.log_every_steps,
    )
    try:
        fit(model, data, run, workers, EventLog(Path(task.folder) / EVENTS_FILE))
    except checkpoint.CheckpointError as error:
        raise TradukoError(str(error)) from None


def load_tokens(path: Path) -> TokenTable:
    """Piece ids of a shard, mapped from the file."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all().combine_chunks()
    src, tgt = (table[name].chunk(0) for name in ("src_ids", "tgt_ids"))
    return TokenTable(
        src.values.to_numpy(), src.offsets.to_numpy(), tgt.values.to_numpy(), tgt.offsets.to_numpy()
    )


def _steps(task: Task, shards: TokenShards, workers: Workers, after: int) -> Iterator[Step]:
    """This worker's share of each step after `after`."""
    plan = Plan(
        shards.src_lengths,
        shards.tgt_lengths,
        task.seed,
        task.train.tokens_per_micro_batch,
        task.train.micro_batches_per_step,
    )
    share = task.train.micro_batches_per_step // workers.size
    first = workers.rank * share
    for planned in plan.steps(after):
        mine = planned.micro_batches[first : first + share]
        micro_batches = [_tensors(shards, rows) for rows in mine]
        yield Step(planned.number, first, micro_batches, planned.num_target_tokens)


def _dev(task: Task) -> list[MicroBatch]:
    shards = TokenShards([load_tokens(Path(path)) for path in task.dev])
    if not len(shards):
        return []
    budget = task.train.tokens_per_micro_batch
    batches = dev_batches(shards.src_lengths, shards.tgt_lengths, budget)
    return [_tensors(shards, rows) for rows in batches]


def _tensors(shards: TokenShards, rows: Int64s) -> MicroBatch:
    return MicroBatch(*map(torch.from_numpy, shards.collate(rows)))


def _worker_group(job: Job, most_useful: int) -> WorkerGroup:
    """As asked; `auto` is the largest power of two that the cluster and the plan allow.

    Raises:
        ConfigError: If the cluster can never run what is asked for.
    """
    settings, cpus, gpus = job.settings, job.compute.num_cpus(), job.compute.num_gpus()
    if settings.accelerator == "gpu" and not gpus:
        raise ConfigError(
            "`compute.accelerator` is gpu, but the cluster has no GPU. Set it to auto or cpu, or "
            "join a cluster that has one with --ray."
        )
    if settings.threads_per_worker > cpus:
        raise ConfigError(
            f"`compute.threads_per_worker` must be at most {cpus}, the CPUs of the cluster, but is "
            f"{settings.threads_per_worker}."
        )
    use_gpu = gpus > 0 and settings.accelerator != "cpu"
    fitting = cpus // settings.threads_per_worker
    fitting = min(fitting, gpus) if use_gpu else fitting
    wanted = settings.num_workers
    if wanted == "auto":
        wanted = 1 << (min(fitting, most_useful).bit_length() - 1)
    if wanted > fitting:
        raise ConfigError(
            f"`compute.num_workers` must be at most {fitting}, for the cluster has {cpus} CPUs and "
            f"{gpus} GPUs and each worker takes `compute.threads_per_worker` = "
            f"{settings.threads_per_worker}; but it is {wanted}."
        )
    return WorkerGroup(wanted, settings.threads_per_worker, use_gpu, job.work / "ray")


@contextlib.contextmanager
def _following(events: Path, max_steps: int, progress: Progress) -> Iterator[None]:
    """Show what the workers log, from a thread beside them."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(POLL_S):
            # A window whose steps were all skipped has no loss.
            logged = [event for event in read_events(events) if "loss" in event["metrics"]]
            if logged:
                metrics = logged[-1]["metrics"]
                note = f"loss {metrics['loss']:.3f}, {metrics['tokens_per_s']:,.0f} tokens/s"
                progress(logged[-1]["step"], max_steps, "steps", note)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _published(config: TrainConfig) -> list[int]:
    """The steps whose checkpoints the artifact holds, however they came about."""
    every, last = config.checkpoint_every_steps, config.max_steps
    return [*range(every, last, every), last][-config.keep_checkpoints :]


def _forget_what_has_gaps(job: Job, config: TrainConfig) -> None:
    """Begin anew where checkpoints to publish are gone: a longer run's newer ones took their place.

    Otherwise the artifact of a recipe would depend on what was trained before it.
    """
    found = checkpoint.newest(job.work, at_most=config.max_steps)
    if not found:
        return
    due = [step for step in _published(config) if step < found.step]
    gone = [step for step in due if not _is_whole(job.work / _name(step))]
    if not gone:
        return
    job.say(f"train: the checkpoint of step {gone[0]} is gone or damaged; training begins anew")
    for step in checkpoint.steps(job.work):
        if step <= config.max_steps:
            shutil.rmtree(job.work / _name(step))


def _is_whole(path: Path) -> bool:
    try:
        checkpoint.verify(path)
    except checkpoint.CheckpointError:
        return False
    return True


def _keeping_enough(work: Path, config: TrainConfig) -> TrainConfig:
    """The config with room for checkpoints at which shorter runs ended, which are not published."""
    every = config.checkpoint_every_steps
    ends = [step for step in checkpoint.steps(work) if step < config.max_steps and step % every]
    return replace(config, keep_checkpoints=config.keep_checkpoints + len(ends))


def _publish(work: Path, out: Path, config: TrainConfig) -> list[int]:
    """Link the weights of the last checkpoints into the artifact: the files never change."""
    kept = _published(config)
    for step in kept:
        (out / _name(step)).mkdir()
        for file in (checkpoint.WEIGHTS, checkpoint.META):
            os.link(work / _name(step) / file, out / _name(step) / file)
    (out / EVENTS_FILE).write_bytes((work / EVENTS_FILE).read_bytes())
    return kept


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _last_metrics(events: Path) -> Json:
    """The last of each kind of number that people ask for."""
    metrics: Json = {}
    for event in read_events(events):
        metrics |= event["metrics"]
    return {
        name: round(metrics[name], 4)
        for name in ("loss", "dev_loss", "dev_perplexity", "tokens_per_s", "padding_share")
        if name in metrics
    }
