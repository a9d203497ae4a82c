"""Stage 6: shards of piece ids to checkpoints.

Out: `step-*/` of the last checkpoints and of the best by dev loss (weights, what they were trained
with), and `events.jsonl`.
Checkpoints live in the work folder, which outlives the artifact: more steps go on from there.
"""

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import torch

from model import checkpoint
from model.config import UNK, ModelConfig, TrainConfig
from model.fit import Data, History, Run, TrainingError, fit, regular_steps
from model.trainer import Asks, MicroBatch, Step
from model.transformer import Transformer
from model.workers import Workers
from pipeline.artifact import Artifact, Json
from pipeline.batching import Int64s, Plan, TokenShards, TokenTable, dev_batches
from pipeline.capacity import share_of
from pipeline.compute import IsLeaving, WorkerGroup
from pipeline.errors import ConfigError, LostWorkersError, TradukoError
from pipeline.events import EVENTS_FILE, EventLog, read_events
from pipeline.job import Job, Progress
from pipeline.prefetch import prefetch
from pipeline.translating.bundle import load_bundle_weights, read_bundle_config

POLL_S = 0.5
STEPS_AHEAD = 2
STOP_FILE = "stop"
"""In the work folder: workers that see it save what they have, and end."""
LOCK_FILE = "lock"
"""In the work folder: held by the first worker while it trains."""


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
    src_vocab_size: int | None = None
    """Of the source's own vocabulary; none = `vocab_size` is that of both sides."""


def train(seed: int, model: ModelConfig, config: TrainConfig, tokenize: Artifact, job: Job) -> Json:
    """Train to `max_steps`, from the newest checkpoint if an earlier attempt left one.

    Raises:
        ConfigError: If more workers are asked for than the cluster can run, or the model to start
            from is of another kind.
        TradukoError: If training failed, or a checkpoint is of something else.
    """
    if config.init_from:
        _check_start(Path(config.init_from), model, tokenize.stats["tokenizer"])
    with _alone_in(job.work, on_wait=lambda: _send_away(job)):
        (job.work / STOP_FILE).unlink(missing_ok=True)
        _forget_what_has_gaps(job, config)
    group = _worker_group(job, config.micro_batches_per_step)
    task = Task(
        seed=seed,
        model=model,
        train=config,
        vocab_size=tokenize.stats["vocab_size"],
        src_vocab_size=tokenize.stats.get("src_vocab_size"),
        tokenizer=tokenize.stats["tokenizer"],
        shards=tuple(map(str, tokenize.paths("part-*.arrow"))),
        dev=tuple(map(str, tokenize.paths("dev/*.arrow"))),
        folder=str(job.work),
        log_every_steps=job.settings.log_every_steps,
        device="cuda" if group.use_gpu else "cpu",
    )
    events = job.work / EVENTS_FILE
    with _following(events, config.max_steps, job.progress):
        _train_on(task, group, job)
    history = _require_end(job.work, config)
    _publish(job.work, job.out, history.kept_steps(config))
    return {
        "steps": history.step,
        "checkpoints": history.kept_steps(config),
        "best_checkpoint": history.best[0].step if history.best else None,
        "skipped_steps": history.skipped,
        "num_workers": group.num_workers,
        "device": task.device,
        **_last_metrics(events),
    }


def _train_on(task: Task, group: WorkerGroup, job: Job) -> None:
    """Train to the end, however often workers are lost, as long as they get on in between.

    Raises:
        LostWorkersError: If they do not.
    """
    while True:
        reached = _newest_step(job.work)
        try:
            return job.compute.train(run_worker, task, group)
        except LostWorkersError as error:
            step = _newest_step(job.work)
            if step <= reached:
                raise
            job.say(f"train: {error} Going on from step {step}.")


def _newest_step(work: Path) -> int:
    return max(checkpoint.steps(work), default=0)


def run_worker(task: Task, is_leaving: IsLeaving) -> None:
    """Train on one worker: the same on each, but for its share of every step.

    Raises:
        TradukoError: On all workers, if the newest checkpoint is of another run, or training
            cannot go on.
    """
    workers = Workers.here(task.train.micro_batches_per_step)
    if workers is None:
        return
    shards = TokenShards([load_tokens(Path(path)) for path in task.shards])
    torch.manual_seed(task.seed)
    model = Transformer(task.model, task.vocab_size, task.src_vocab_size)
    if task.train.init_from:
        load_bundle_weights(Path(task.train.init_from), model)
    model.to(task.device)
    data = Data(
        steps=lambda after: prefetch(lambda: _steps(task, shards, workers, after), STEPS_AHEAD),
        dev=_dev(task),
        largest=_largest(task, shards),
    )
    run = Run(
        config=task.train,
        seed=task.seed,
        folder=Path(task.folder),
        meta={"model": asdict(task.model), "tokenizer": task.tokenizer},
        log_every_steps=task.log_every_steps,
        asks=_asks(Path(task.folder), workers, is_leaving),
    )
    try:
        with _alone_in(run.folder) if workers.rank == 0 else contextlib.nullcontext():
            fit(model, data, run, workers, EventLog(run.folder / EVENTS_FILE))
    except (checkpoint.CheckpointError, TrainingError) as error:
        raise TradukoError(str(error)) from None


def _asks(folder: Path, workers: Workers, is_leaving: IsLeaving) -> Callable[[], Asks]:
    """What this worker asks for, from what the driver and the cluster say.

    Only where all workers of the engine take part: asking the cluster is something they do together.
    """
    stop, all_take_part = folder / STOP_FILE, workers.group is None
    return lambda: Asks(save=all_take_part and is_leaving(), stop=stop.exists())


@contextlib.contextmanager
def _alone_in(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Keep the folder from workers whose driver was killed: they go on for seconds.

    The kernel frees a killed holder's lock.
    """
    with (folder / LOCK_FILE).open("a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _send_away(job: Job) -> None:
    """Ask workers that a killed driver has left behind to end."""
    job.say("train: workers of an earlier run are still in its folder; waiting for their end")
    (job.work / STOP_FILE).touch()


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
        micro_batches = [_tensors(shards, rows, task.device) for rows in mine]
        yield Step(planned.number, first, micro_batches, planned.num_target_tokens)


def _dev(task: Task) -> list[MicroBatch]:
    shards = TokenShards([load_tokens(Path(path)) for path in task.dev])
    if not len(shards):
        return []
    budget = task.train.tokens_per_micro_batch
    batches = dev_batches(shards.src_lengths, shards.tgt_lengths, budget)
    return [_tensors(shards, rows, task.device) for rows in batches]


def _largest(task: Task, shards: TokenShards) -> MicroBatch:
    """As many of the longest pairs as a micro-batch may hold: what attention needs most for."""
    src, tgt = int(shards.src_lengths.max()), int(shards.tgt_lengths.max())
    rows = task.train.tokens_per_micro_batch // max(src, tgt)
    sources, targets = (torch.full((rows, length), UNK) for length in (src, tgt))
    return MicroBatch(sources, targets, targets)


def _tensors(shards: TokenShards, rows: Int64s, device: str) -> MicroBatch:
    """A micro-batch in memory from which a GPU can fetch it while it works."""
    tensors = map(torch.from_numpy, shards.collate(rows))
    return MicroBatch(*(ids.pin_memory() if device == "cuda" else ids for ids in tensors))


def _check_start(bundle: Path, model: ModelConfig, tokenizer: str) -> None:
    """Refuse a bundle whose weights mean something else here.

    Raises:
        ConfigError: If its vocabulary or its shape differs.
    """
    start = read_bundle_config(bundle)
    if start["tokenizer"] != tokenizer:
        raise ConfigError(
            f"`train.init_from` must be a model with this recipe's vocabulary, but {bundle} has "
            f"another one. Set `vocab.init_from` to it as well."
        )
    for name, value in asdict(model).items():
        if "dropout" not in name and value != start["model"][name]:
            raise ConfigError(
                f"`model.{name}` must be {start['model'][name]}, as in {bundle}, which "
                f"`train.init_from` names, but is {value}."
            )


def _worker_group(job: Job, most_useful: int) -> WorkerGroup:
    share = share_of(job.compute, job.settings, most_useful)
    return WorkerGroup(
        num_workers=share.num_workers,
        num_threads=job.settings.threads_per_worker,
        need=share.need,
        storage=job.work / "ray",
        stop_file=job.work / STOP_FILE,
    )


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


def _forget_what_has_gaps(job: Job, config: TrainConfig) -> None:
    """Begin anew where checkpoints to publish are gone: a longer run's newer ones took their place.

    Otherwise the artifact of a recipe would depend on what was trained before it.
    """
    found = checkpoint.newest(job.work, at_most=config.max_steps)
    if not found:
        return
    newest = regular_steps(config, config.max_steps)[-config.keep_checkpoints :]
    due = sorted({*newest, *(scored.step for scored in History.of(found).best)})
    gone = [step for step in due if step < found.step and not _is_whole(job.work, step)]
    if not gone:
        return
    job.say(f"train: the checkpoint of step {gone[0]} is gone or damaged; training begins anew")
    for step in checkpoint.steps(job.work):
        if step <= config.max_steps:
            shutil.rmtree(checkpoint.path_of(job.work, step))


def _is_whole(work: Path, step: int) -> bool:
    try:
        checkpoint.verify(checkpoint.path_of(work, step))
    except checkpoint.CheckpointError:
        return False
    return True


def _require_end(work: Path, config: TrainConfig) -> History:
    """What the run has been through, now that it is over.

    Raises:
        TradukoError: If it was asked to stop before.
    """
    found = checkpoint.newest(work, at_most=config.max_steps)
    history = History.of(found) if found else History()
    if not history.is_over(config):
        raise TradukoError(
            f"Training was asked to stop, and did after step {history.step}. Run the same command "
            "to go on."
        )
    return history


def _publish(work: Path, out: Path, steps: Sequence[int]) -> None:
    """Link the weights of checkpoints into the artifact: the files never change."""
    for step in steps:
        source, target = (checkpoint.path_of(folder, step) for folder in (work, out))
        target.mkdir()
        for file in (checkpoint.WEIGHTS, checkpoint.META):
            os.link(source / file, target / file)
    (out / EVENTS_FILE).write_bytes((work / EVENTS_FILE).read_bytes())


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
