import dataclasses
import json
import time
import uuid

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

import pipeline.train
from model.config import ModelConfig, TrainConfig
from pipeline.artifact import Identity, Root
from pipeline.compute import InProcess, Machine, Resources
from pipeline.config import ComputeConfig
from pipeline.errors import ConfigError, LostWorkersError, TradukoError
from pipeline.events import EVENTS_FILE, EventLog, read_events
from pipeline.job import Job
from pipeline.train import train

SEED = 7
MODEL = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    dropout=0.2, max_positions=16)  # fmt: skip
TRAIN = TrainConfig(max_steps=6, tokens_per_micro_batch=32, micro_batches_per_step=2, warmup_steps=4,
                    checkpoint_every_steps=2, dev_every_steps=3, keep_checkpoints=2)  # fmt: skip
VOCAB_SIZE = 40


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """What `tokenize` makes: sixty pairs in shards of these sizes, and a dev set."""
    root = Root(tmp_path_factory.mktemp("root"), lambda line: None)

    def make(*shard_sizes, dev=True, tokenizer="a" * 64):
        def build(out, work):
            start = 0
            for index, size in enumerate(shard_sizes or (60,)):
                write_shard(out / f"part-{index:05d}.arrow", range(start, start + size))
                start += size
            assert start == 60, "the same pairs, however they are cut"
            if dev:
                (out / "dev").mkdir()
                write_shard(out / "dev" / "dev.arrow", range(1000, 1008))
            return {"vocab_size": VOCAB_SIZE, "tokenizer": tokenizer}

        config = {"shards": list(shard_sizes), "dev": dev, "tokenizer": tokenizer}
        return root.produce(Identity("tokenize", 1, config, ()), build)[0]

    return make


def write_shard(path, pairs):
    kind = pa.list_(pa.uint16())
    sides = [pa.array([pieces(2 * pair + side) for pair in pairs], kind) for side in (0, 1)]
    batch = pa.record_batch(sides, ["src_ids", "tgt_ids"])
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def pieces(seed):
    random = np.random.default_rng(seed)
    return random.integers(4, VOCAB_SIZE, random.integers(1, 8)).tolist()


@pytest.fixture
def job(make_job):
    return make_job("train", log_every_steps=1)


def attempt(job, tokenize, seed=SEED, **changes):
    """Run the stage as one more attempt in the job's work folder.

    Gives the folder that it filled and its statistics.
    """
    out = job.out / uuid.uuid4().hex
    out.mkdir()
    config = dataclasses.replace(TRAIN, **changes)
    return out, train(seed, MODEL, config, tokenize, dataclasses.replace(job, out=out))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tokens):
    """What an attempt gives in a work folder of its own; made once for all tests."""
    made = {}

    def run(**changes):
        key = str(changes)
        if key not in made:
            settings = ComputeConfig(log_every_steps=1)
            work, out = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("out")
            progress, say = (lambda *arguments: None for _ in range(2))
            job = Job(out, work, InProcess(), settings, None, progress, say)
            made[key] = attempt(job, tokens(), **changes)
        return made[key]

    return run


def weights(out):
    """The bytes of every published file of weights, by checkpoint."""
    return {path.parent.name: path.read_bytes() for path in out.glob("step-*/weights.safetensors")}


def happened(out):
    """The events but for resumes, and for what depends on the clock."""
    return [
        (
            event["step"],
            event["kind"],
            {**event["metrics"], "tokens_per_s": 0, "flop_utilisation": 0},
        )
        for event in read_events(out / EVENTS_FILE)
        if event["kind"] != "resumed"
    ]


class KilledError(Exception):
    pass


@pytest.fixture
def kill_after(monkeypatch):
    """Ends the next attempt right after it has logged this event."""
    write = EventLog.__call__

    def arm(step, kind):
        def write_and_die(log, event):
            write(log, event)
            if event[:2] == (step, kind):
                monkeypatch.setattr(EventLog, "__call__", write)
                raise KilledError

        monkeypatch.setattr(EventLog, "__call__", write_and_die)

    return arm


@pytest.mark.parametrize(
    ("moment", "resumed"),
    [
        ((1, "train"), []),
        ((2, "checkpoint"), [2]),
        ((3, "dev"), [2]),
        ((5, "train"), [4]),
        ((6, "dev"), [4]),
    ],
)
def test_a_killed_run_ends_with_the_weights_and_events_of_an_uninterrupted_one(
    tokens, uninterrupted, kill_after, job, moment, resumed
):
    kill_after(*moment)
    with pytest.raises(KilledError):
        attempt(job, tokens())
    with (job.work / EVENTS_FILE).open("a") as file:
        file.write('{"step": 6, "ti')  # killed while writing
    out, _ = attempt(job, tokens())
    expected, _ = uninterrupted()
    assert weights(out) == weights(expected)
    assert happened(out) == happened(expected)
    events = read_events(out / EVENTS_FILE)
    assert [event["step"] for event in events if event["kind"] == "resumed"] == resumed


class Losing(InProcess):
    """Loses its workers at each of these steps."""

    def __init__(self, *steps):
        self.steps, self.starts = list(steps), 0

    def train(self, worker, task, group):
        self.starts += 1
        if not self.steps:
            return super().train(worker, task, group)
        until = dataclasses.replace(task.train, max_steps=self.steps.pop(0))
        super().train(worker, dataclasses.replace(task, train=until), group)
        raise LostWorkersError("Training failed: one has died.")


def test_lost_workers_are_replaced_for_ever_as_long_as_training_gets_on(tokens, job, uninterrupted):
    said, cluster = [], Losing(2, 4, 5)
    out, _ = attempt(dataclasses.replace(job, compute=cluster, say=said.append), tokens())
    assert cluster.starts == 4
    assert said == [
        f"train: Training failed: one has died. Going on from step {step}." for step in (2, 4, 5)
    ]
    assert weights(out) == weights(uninterrupted()[0])


def test_workers_lost_twice_at_the_same_step_end_the_run(tokens, job):
    cluster = Losing(2, 4, 4, 6)
    with pytest.raises(LostWorkersError):
        attempt(dataclasses.replace(job, compute=cluster), tokens())
    assert cluster.starts == 3


def test_other_seeds_give_other_weights(tokens, job, uninterrupted):
    other, _ = attempt(job, tokens(), seed=SEED + 1)
    one, _ = uninterrupted()
    assert weights(other).keys() == weights(one).keys()
    assert weights(other) != weights(one)


@pytest.mark.parametrize(
    ("ends", "keep"),
    [((6, 12), 2), ((12, 6), 2), ((7, 9, 11, 12), 5), ((12, 6), 5), ((6, 12, 7, 12), 5)],
)
def test_what_was_trained_before_does_not_show(tokens, job, uninterrupted, ends, keep):
    for end in ends:
        out, stats = attempt(job, tokens(), max_steps=end, keep_checkpoints=keep)
    expected, expected_stats = uninterrupted(max_steps=ends[-1], keep_checkpoints=keep)
    assert stats["checkpoints"] == expected_stats["checkpoints"]
    assert weights(out) == weights(expected)


def test_more_steps_go_on_from_where_fewer_ended(tokens, job):
    attempt(job, tokens())
    out, _ = attempt(job, tokens(), max_steps=8)
    events = read_events(out / EVENTS_FILE)
    assert [event["step"] for event in events if event["kind"] == "resumed"] == [6]
    assert [event["step"] for event in events if event["kind"] == "train"] == [*range(1, 9)]


def test_training_begins_anew_where_a_checkpoint_to_publish_is_damaged(tokens, job, uninterrupted):
    said = []
    job = dataclasses.replace(job, say=said.append)
    attempt(job, tokens(), keep_checkpoints=3)
    with (job.work / "step-00000002" / "weights.safetensors").open("r+b") as file:
        file.truncate(100)
    out, _ = attempt(job, tokens(), keep_checkpoints=3)
    assert said == ["train: the checkpoint of step 2 is gone or damaged; training begins anew"]
    assert weights(out) == weights(uninterrupted(keep_checkpoints=3)[0])


@pytest.mark.parametrize(
    ("max_steps", "keep", "expected"),
    [(6, 2, [4, 6]), (6, 9, [2, 4, 6]), (7, 2, [6, 7]), (7, 1, [6, 7]), (1, 2, [1])],
)
def test_the_last_checkpoints_the_final_one_and_the_best_are_published(
    uninterrupted, max_steps, keep, expected
):
    out, stats = uninterrupted(max_steps=max_steps, keep_checkpoints=keep)
    assert stats["checkpoints"] == expected
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    names = ("meta.json", "weights.safetensors")
    assert files == {
        EVENTS_FILE,
        *(f"step-{step:08d}/{name}" for step in expected for name in names),
    }


def test_shards_are_read_as_one(tokens, job, uninterrupted):
    out, _ = attempt(job, tokens(25, 0, 34, 1))
    expected, _ = uninterrupted()
    assert weights(out) == weights(expected)
    assert happened(out) == happened(expected)


def test_statistics_are_those_of_the_last_step(uninterrupted):
    out, stats = uninterrupted()
    events = {(e["step"], e["kind"]): e["metrics"] for e in read_events(out / EVENTS_FILE)}
    assert stats["loss"] == pytest.approx(events[6, "train"]["loss"], abs=1e-4)
    perplexities = [events[step, "dev"]["dev_perplexity"] for step in (3, 6)]
    assert perplexities[1] == pytest.approx(stats["dev_perplexity"], abs=1e-4)
    assert perplexities[0] != pytest.approx(stats["dev_perplexity"], abs=1e-4)
    assert (stats["steps"], stats["num_workers"]) == (6, 1)


def test_without_a_dev_set_no_loss_is_measured_on_it(tokens, job, uninterrupted):
    out, stats = attempt(job, tokens(dev=False))
    assert {event["kind"] for event in read_events(out / EVENTS_FILE)} == {"train", "checkpoint"}
    assert "dev_loss" not in stats
    assert weights(out) == weights(uninterrupted()[0])


def test_a_checkpoint_of_another_tokenizer_is_refused(tokens, job):
    attempt(job, tokens(tokenizer="a" * 64), max_steps=1)
    with pytest.raises(TradukoError, match=r'`tokenizer` = "a{64}", but this run has "b{64}"'):
        attempt(job, tokens(tokenizer="b" * 64), max_steps=2)


def test_a_run_that_ends_early_publishes_its_end_and_its_best(tokens, job):
    out, stats = attempt(job, tokens(), patience=1, lr_scale=30.0, max_steps=60, dev_every_steps=2)
    assert stats["steps"] < 60
    assert stats["checkpoints"][-1] == stats["steps"]
    assert stats["best_checkpoint"] in stats["checkpoints"]
    assert sorted(weights(out)) == [f"step-{step:08d}" for step in stats["checkpoints"]]


def test_a_run_that_is_asked_to_stop_is_not_published_and_goes_on(
    tokens, job, uninterrupted, monkeypatch
):
    asking = InProcess()

    def train_and_ask(worker, task, group):
        group.stop_file.touch()
        worker(task, lambda: False)

    monkeypatch.setattr(asking, "train", train_and_ask)
    with pytest.raises(TradukoError, match=r"did after step 1\. Run the same command to go on"):
        attempt(dataclasses.replace(job, compute=asking), tokens())
    out, _ = attempt(job, tokens())
    assert weights(out) == weights(uninterrupted()[0])


@pytest.fixture
def bundle(tmp_path, uninterrupted):
    """A bundle with the weights of an earlier run."""

    def make(**changes):
        folder = tmp_path / "bundle"
        folder.mkdir()
        source = uninterrupted()[0] / "step-00000006" / "weights.safetensors"
        (folder / "model.safetensors").write_bytes(source.read_bytes())
        said = {"model": dataclasses.asdict(MODEL), "tokenizer": "a" * 64}
        (folder / "config.json").write_text(json.dumps(said | changes))
        return str(folder)

    return make


def test_training_starts_from_another_models_weights(tokens, job, bundle):
    folder = bundle()
    out, _ = attempt(job, tokens(), init_from=folder, max_steps=1, lr_scale=1e-9)
    start = load_file(f"{folder}/model.safetensors")
    first = load_file(out / "step-00000001" / "weights.safetensors")
    assert all(torch.allclose(start[name], first[name], atol=1e-6) for name in start)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer": "b" * 64}, r"has another one\. Set `vocab\.init_from`"),
        (
            {"model": {**dataclasses.asdict(MODEL), "ff_dim": 64}},
            "`model.ff_dim` must be 64, as in",
        ),
    ],
)
def test_a_start_from_another_kind_of_model_is_refused(tokens, job, bundle, changes, words):
    with pytest.raises(ConfigError, match=words):
        attempt(job, tokens(), init_from=bundle(**changes))


class StoppedError(Exception):
    pass


class Cluster(InProcess):
    """A cluster of so many CPUs and GPUs, which trains nothing but notes what it is asked for."""

    def __init__(self, num_cpus, on_train=lambda: None, num_gpus=0):
        self._has, self._on_train = Resources(num_cpus, num_gpus), on_train
        self.asked = None

    def machines(self):
        return [Machine("node", self._has)]

    def train(self, worker, task, group):
        self.asked = group.num_workers, group.num_threads
        self.device, self.use_gpu = task.device, group.use_gpu
        self._on_train()
        raise StoppedError


@pytest.mark.parametrize(
    ("num_cpus", "settings", "expected"),
    [
        (1, {}, (1, 1)),
        (2, {}, (2, 1)),
        (3, {}, (2, 1)),
        (8, {}, (8, 1)),
        (100, {}, (8, 1)),
        (3, {"threads_per_worker": 2}, (1, 2)),
        (100, {"threads_per_worker": 25}, (4, 25)),
        (9, {"threads_per_worker": 2, "num_workers": 4}, (4, 2)),
        (100, {"num_workers": 2}, (2, 1)),
        (2, {"num_workers": (1, 8)}, ((1, 8), 1)),
    ],
)
def test_auto_takes_the_largest_power_of_two_that_cpus_and_plan_allow(
    tokens, make_job, num_cpus, settings, expected
):
    cluster = Cluster(num_cpus)
    with pytest.raises(StoppedError):
        attempt(make_job("train", cluster, **settings), tokens(), micro_batches_per_step=8)
    assert cluster.asked == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_workers": 4}, r"`compute\.num_workers` must be at most 3, for each worker takes 1 CPU "
                             r"and the cluster has node 3 CPUs; but it is 4\."),
        ({"num_workers": (4, 8)}, "must be at most 3, .* but it is 4"),
        ({"num_workers": 2, "threads_per_worker": 2}, r"must be at most 1, .* 2 CPUs .* node 3 CPUs; but it is 2\."),
        ({"threads_per_worker": 4}, r"takes 4 CPUs \(`compute\.threads_per_worker`, .* has that: node 3 CPUs\."),
    ],
)  # fmt: skip
def test_more_than_the_cluster_has_is_refused(tokens, make_job, settings, words):
    cluster = Cluster(3)
    with pytest.raises(ConfigError, match=words):
        attempt(make_job("train", cluster, **settings), tokens())
    assert cluster.asked is None


@pytest.mark.parametrize(
    ("num_gpus", "settings", "expected"),
    [
        (0, {}, (8, False)),
        (1, {}, (1, True)),
        (3, {}, (2, True)),
        (3, {"accelerator": "cpu"}, (8, False)),
        (4, {"accelerator": "gpu", "num_workers": 2}, (2, True)),
    ],
)
def test_each_worker_has_a_gpu_where_the_cluster_has_any(
    tokens, make_job, num_gpus, settings, expected
):
    cluster = Cluster(8, num_gpus=num_gpus)
    with pytest.raises(StoppedError):
        attempt(make_job("train", cluster, **settings), tokens(), micro_batches_per_step=8)
    assert (cluster.asked[0], cluster.use_gpu) == expected
    assert cluster.device == ("cuda" if cluster.use_gpu else "cpu")


@pytest.mark.parametrize(
    ("num_gpus", "settings", "words"),
    [
        (0, {"accelerator": "gpu"}, r"`compute\.accelerator` is gpu, but the cluster has no GPU"),
        (
            1,
            {"num_workers": 2},
            r"must be at most 1, .* takes 1 CPU and 1 GPU and .* node 8 CPUs and 1 GPU;",
        ),
    ],
)
def test_gpus_that_are_not_there_are_refused(tokens, make_job, num_gpus, settings, words):
    cluster = Cluster(8, num_gpus=num_gpus)
    with pytest.raises(ConfigError, match=words):
        attempt(make_job("train", cluster, **settings), tokens())
    assert cluster.asked is None


def test_progress_follows_the_log_past_windows_without_a_loss(tokens, make_job, monkeypatch):
    shown = []

    def log():
        skipped = {"step": 1, "kind": "train", "metrics": {"skipped_steps": 1.0}}
        taken = {"step": 2, "kind": "train", "metrics": {"loss": 1.25, "tokens_per_s": 1234.5}}
        for event in (skipped, taken, skipped | {"step": 3}):
            with (job.work / EVENTS_FILE).open("a") as file:
                file.write(json.dumps(event) + "\n")
            time.sleep(0.1)

    monkeypatch.setattr(pipeline.train, "POLL_S", 0.01)
    job = make_job("train", Cluster(1, log))
    job = dataclasses.replace(job, progress=lambda *arguments: shown.append(arguments))
    with pytest.raises(StoppedError):
        attempt(job, tokens())
    assert set(shown) == {(2, 6, "steps", "loss 1.250, 1,234 tokens/s")}


def test_a_line_that_is_being_written_is_no_event(tmp_path):
    path = tmp_path / EVENTS_FILE
    assert read_events(path) == []
    whole = json.dumps({"step": 1}) + "\n"
    for end in range(len(whole)):
        path.write_text(whole + whole[:end])
        assert read_events(path) == [{"step": 1}]
    path.write_text(whole + whole)
    assert len(read_events(path)) == 2
