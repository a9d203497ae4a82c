"""The record in MLflow: complete, once, with the right status, whatever is killed."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows import mlflow_store, tracking
from flows.run import Result
from flows.tracking import Tracker
from pipeline.artifact import Root
from pipeline.dag import Node, Stage
from pipeline.errors import TradukoError
from pipeline.recipe import read_recipe

REPO = Path(__file__).resolve().parents[2]
CONFIG = read_recipe(str(REPO / "tests" / "tiny.toml"))


@pytest.fixture(autouse=True)
def no_store_given(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(tracking, "POLL_S", 0.05)


@pytest.fixture(scope="session")
def new_store(tmp_path_factory):
    """A store with its tables and nothing in it: making one takes seconds."""
    folder = tmp_path_factory.mktemp("store")
    with mlflow_store.quietly():
        mlflow_store.open_store(f"sqlite:///{folder}/mlflow.db", "Default", folder)
    return folder / "mlflow.db"


@pytest.fixture
def said():
    return []


@pytest.fixture
def track(tmp_path, said, new_store):
    """Makes the tracker of one more pipeline run."""
    (tmp_path / "mlflow").mkdir()
    shutil.copy(new_store, tmp_path / "mlflow")
    return lambda: Tracker(tmp_path, CONFIG, said.append)


@pytest.fixture
def client(track):
    from mlflow import MlflowClient

    return lambda: MlflowClient(track().uri)


@pytest.fixture
def look(client):
    """All runs of the experiment, or those with a name: parents, then producers, then cached."""

    def rank(run):
        return "mlflow.parentRunId" in run.data.tags, "cached" in run.data.tags

    def look(name=None):
        found = client()
        experiment = found.get_experiment_by_name(CONFIG.name)
        runs = sorted(found.search_runs([experiment.experiment_id]), key=rank)
        return [run for run in runs if name is None or run.info.run_name == name]

    return look


@pytest.fixture
def points(client, look):
    """The steps and values of a metric of the one run with a name."""

    def points(name, key):
        [run] = look(name)
        return [(at.step, at.value) for at in client().get_metric_history(run.info.run_id, key)]

    return points


def node(name="vocab", **config):
    """A stage of a name; its fingerprint covers the config."""
    stage = Stage(name, 1, lambda *_: {}, resume_without=("max_steps",) if name == "train" else ())
    return Node(stage, config, config)


def step(tracker, root, node, fill=lambda out, work: {}, force=False):
    """One step of a pipeline run, as `flows.run` takes it."""

    def build(out, work):
        with tracker.building(node, node.identity({}), work):
            return fill(out, work)

    root = Root(root, print)
    key = node.work_key({})
    artifact, cached = root.produce(node.identity({}), build, work_key=key, force=force)
    result = Result(node, artifact, cached, 0.0)
    tracker.finished(result)
    return result


def events(path, *steps, checkpoints=()):
    """Append training events."""
    with path.open("a") as file:
        for step in steps:
            kinds = [("train", {"loss": 10.0 - step, "tokens_per_s": 5.0})]
            kinds += [("checkpoint", {})] if step in checkpoints else []
            for kind, metrics in kinds:
                stamp = f"2026-01-01T00:00:{step:02}.250+00:00"
                file.write(
                    json.dumps({"step": step, "time": stamp, "kind": kind, "metrics": metrics})
                    + "\n"
                )


def cut(path, last_step):
    """What a resumed run does first."""
    kept = [line for line in path.read_text().splitlines() if json.loads(line)["step"] <= last_step]
    new = path.with_suffix(".new")
    new.write_text("".join(line + "\n" for line in kept))
    new.replace(path)


def publish(out, work):
    (out / "events.jsonl").write_bytes((work / "events.jsonl").read_bytes())


def eventually(holds):
    for _ in range(100):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came about")


class Gone(BaseException):
    """The process is killed."""


def die(tracker):
    """Leave as `kill -9` does: nothing is told, the kernel frees the lock."""
    tracker._mark._file.close()
    tracker._stack.pop_all()


def test_making_a_tracker_loads_and_writes_nothing(tmp_path):
    code = f"""if True:
        import sys
        from pathlib import Path
        from flows.tracking import Tracker
        from pipeline.recipe import read_recipe
        Tracker(Path({str(tmp_path)!r}), read_recipe({str(REPO / "tests" / "tiny.toml")!r}), print)
        assert not {{"mlflow", "torch", "ray", "prefect", "pyarrow"}} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPO)
    assert list(tmp_path.iterdir()) == []


def test_the_parent_holds_the_recipe_and_ends_finished(track, look, tmp_path):
    with track() as tracker:
        [run] = look()
        assert run.info.status == "RUNNING"
    [run] = look()
    assert run.info.run_id == tracker.run_id
    assert run.info.status == "FINISHED"
    assert run.data.params["train.max_steps"] == "40"
    assert run.data.params["download.train.quickstart.builtin.num_train"] == "2000"
    assert run.data.tags["traduko.seed"] == str(CONFIG.seed)
    assert run.data.tags["traduko.root"] == str(tmp_path)
    assert run.data.tags["version.torch"]
    assert tracker.uri == f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlflow"]
    assert not list((tmp_path / "mlflow" / "open").iterdir())


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (TradukoError("the disk is full\nreally"), "FAILED", "the disk is full"),
        (ValueError("a bug"), "FAILED", "ValueError: a bug"),
        (KeyboardInterrupt(), "KILLED", "KeyboardInterrupt"),
        (SystemExit(1), "KILLED", "SystemExit: 1"),
        (Gone("signal 15"), "KILLED", "Gone: signal 15"),
    ],
)
def test_runs_end_as_the_work_did(track, look, tmp_path, error, status, words):
    def fill(out, work):
        raise error

    with pytest.raises(type(error)), track() as tracker:
        step(tracker, tmp_path, node(), fill)
    for run in look():
        assert (run.info.status, run.data.tags["traduko.error"]) == (status, words)
    assert len(look()) == 2


def test_a_stage_has_one_run_across_attempts_under_its_first_parent(track, look, tmp_path):
    def fail(out, work):
        raise ValueError("not yet")

    with contextlib.suppress(ValueError), track() as first:
        step(first, tmp_path, node(), fail)
    with track() as second:
        step(second, tmp_path, node())
    [run] = look("vocab")
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.parentRunId"] == first.run_id != second.run_id
    assert run.data.tags["traduko.run"] == second._id
    assert run.data.tags["traduko.error"] == ""


def test_a_finished_stage_shows_config_numbers_lineage_and_samples(
    track, look, client, tmp_path, said
):
    def fill(out, work):
        (out / "rejected").mkdir()
        rows = {"src": [f"one, {row}" for row in range(50)], "tgt": ["a\nb"] * 50}
        pq.write_table(pa.table(rows), out / "part-00000.parquet")
        pq.write_table(
            pa.table({"src": ["x"], "rule": ["length"]}), out / "rejected" / "part-0.parquet"
        )
        (out / "hypotheses").mkdir()
        (out / "hypotheses" / "test.txt").write_text("eins\u2028zwei\n" * 30)
        (out / "scores.json").write_text("{}")
        return {
            "rows_kept": 50,
            "rejected": {"length": 1},
            "scores": {"test": {"bleu": {"score": 9.5, "signature": "s"}, "ter": None}},
            "src": {"address": "https://me:word@example.org/a.gz", "bytes": 5, "sha256": "ab" * 32},
            "good": True,
        }

    with track() as tracker:
        result = step(tracker, tmp_path, node(max_words=3, rules=["a"], off=None), fill)
    [run] = look("vocab")
    manifest = result.artifact.manifest
    assert run.info.status == "FINISHED"
    assert run.data.params == {"max_words": "3", "rules": '["a"]'}
    expected = {
        "rows_kept": 50,
        "rejected.length": 1,
        "scores.test.bleu.score": 9.5,
        "src.bytes": 5,
    }
    assert run.data.metrics == {**expected, "took_s": manifest.took_s}
    assert run.data.tags["traduko.fingerprint"] == manifest.fingerprint
    assert run.data.tags["traduko.content"] == manifest.content
    assert run.data.tags["traduko.folder"] == str(result.artifact.folder)
    assert run.info.end_time >= run.info.start_time
    [used] = run.inputs.dataset_inputs
    assert json.loads(used.dataset.source) == {"uri": "https://***@example.org/a.gz"}

    kept = Path(client().download_artifacts(run.info.run_id, ""))
    assert json.loads((kept / "manifest.json").read_text())["content"] == manifest.content
    assert (kept / "scores.json").exists()
    assert (kept / "samples" / "kept.csv").read_text().startswith('src,tgt\n"one, 0","a\nb"\n')
    assert (kept / "samples" / "kept.csv").read_text().count("one, ") == 20
    assert (kept / "samples" / "rejected.csv").read_text() == "src,rule\nx,length\n"
    assert len((kept / "samples" / "hypotheses-test.txt").read_text().split("\n")) == 21
    assert said == []


def test_scores_are_on_the_parent_too(track, look, tmp_path):
    with track() as tracker:
        step(
            tracker,
            tmp_path,
            node("evaluate"),
            lambda out, work: {"scores": {"t": {"bleu": {"score": 3.0}}}},
        )
    assert look()[0].data.metrics == {"scores.t.bleu.score": 3.0}


def test_inputs_are_linked_with_their_content(track, look, tmp_path):
    maker, user = node("dedup"), Node(Stage("vocab", 1, lambda *_: {}), {}, {}, ("dedup",))
    with track() as tracker:
        made = step(tracker, tmp_path, maker).artifact
        inputs = {"dedup": made}
        artifact, _ = Root(tmp_path, print).produce(user.identity(inputs), lambda out, work: {})
        tracker.finished(Result(user, artifact, False, 0.0))
    [used] = look("vocab")[0].inputs.dataset_inputs
    assert used.dataset.name == "dedup"
    assert used.dataset.digest == made.manifest.content[:36]
    assert json.loads(used.dataset.source) == {"uri": str(made.folder.parent)}


def test_a_cached_stage_is_a_light_child_that_links_its_producer(track, look, tmp_path):
    with track() as first:
        step(first, tmp_path, node())
    with track() as second:
        assert step(second, tmp_path, node()).cached
    producer, light = look("vocab")
    assert producer.data.tags["mlflow.parentRunId"] == first.run_id
    assert light.data.tags["mlflow.parentRunId"] == second.run_id
    assert light.data.tags["cached"] == "true"
    assert light.data.tags["producer_run_id"] == producer.info.run_id
    assert light.info.status == "FINISHED"
    assert light.data.params == light.data.metrics == {}


def test_what_was_built_without_tracking_gets_its_run(track, look, client, tmp_path):
    def fill(out, work):
        events(out / "events.jsonl", 1, 2, 3, checkpoints=(3,))
        return {"steps": 3, "loss": 7.5}

    trained = node("train", max_steps=3)
    artifact, _ = Root(tmp_path, print).produce(trained.identity({}), fill)
    with track() as tracker:
        tracker.finished(Result(trained, artifact, True, 0.0))
    producer, light = look("train")
    assert producer.info.start_time // 1000 == _seconds(artifact.manifest.started_at)
    assert producer.info.status == light.info.status == "FINISHED"
    assert producer.data.metrics["steps"] == 3.0
    assert producer.data.metrics["loss"] == 7.0, "the last of the curve"
    history = client().get_metric_history(producer.info.run_id, "loss")
    assert sorted(at.step for at in history) == [1, 2, 3]


def _seconds(stamp):
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp()


def test_only_what_a_checkpoint_vouches_for_is_followed(track, points, client, look, tmp_path):
    def fill(out, work):
        log = work / "events.jsonl"
        events(log, 1, 2, 3, checkpoints=(2,))
        eventually(lambda: points("train", "loss"))
        assert points("train", "loss") == [(1, 9.0), (2, 8.0)]
        events(log, 4, checkpoints=(4,))
        eventually(lambda: len(points("train", "loss")) == 4)
        events(log, 5)
        publish(out, work)
        return {"steps": 5, "loss": 5.0}

    with track() as tracker:
        step(tracker, tmp_path, node("train", max_steps=5), fill)
    assert points("train", "loss") == [(at, 10.0 - at) for at in (1, 2, 3, 4, 5)]
    [run] = look("train")
    [first, *_] = client().get_metric_history(run.info.run_id, "loss")
    assert first.timestamp == _seconds("2026-01-01T00:00:01.250+00:00") * 1000


def test_a_killed_run_is_resumed_without_duplicates_or_gaps(track, look, points, tmp_path):
    trained = node("train", max_steps=6)
    work = tmp_path / "work" / "train" / trained.work_key({})

    killed = track().__enter__()
    with contextlib.suppress(Gone), killed.building(trained, trained.identity({}), _made(work)):
        events(work / "events.jsonl", 1, 2, 3, checkpoints=(2,))
        eventually(lambda: len(points("train", "loss")) == 2)
        killed._store = None  # nothing more reaches the store
        events(work / "events.jsonl", 4, 5, checkpoints=(4,))
        raise Gone
    die(killed)
    assert [run.info.status for run in look()] == ["RUNNING", "RUNNING"]

    def fill(out, work):
        cut(work / "events.jsonl", 4)
        events(work / "events.jsonl", 5, 6, checkpoints=(6,))
        publish(out, work)
        return {}

    with track() as tracker:
        step(tracker, tmp_path, trained, fill)
    assert points("train", "loss") == [(at, 10.0 - at) for at in range(1, 7)]
    assert len(points("train", "tokens_per_s")) == 6
    assert sorted(run.info.status for run in look()) == ["FINISHED", "FINISHED", "KILLED"]


def test_steps_done_twice_count_once(track, points, tmp_path):
    """A damaged checkpoint: training goes back behind what was vouched for."""
    trained = node("train", max_steps=4)
    work = _made(tmp_path / "work" / "train" / trained.work_key({}))
    with contextlib.suppress(ValueError), track() as first:  # noqa: SIM117
        with first.building(trained, trained.identity({}), work):
            events(work / "events.jsonl", 1, 2, 3, checkpoints=(3,))
            raise ValueError

    def fill(out, work):
        cut(work / "events.jsonl", 1)
        text = (work / "events.jsonl").read_text().replace("00:01.250", "00:01.251")
        (work / "events.jsonl").write_text(text)
        events(work / "events.jsonl", 2, 3, 4, checkpoints=(4,))
        publish(out, work)
        return {}

    with track() as second:
        step(second, tmp_path, trained, fill)
    assert [at for at, _ in points("train", "loss")] == [1, 2, 3, 4]


def test_steps_of_a_longer_run_in_the_same_folder_stay_out(track, points, tmp_path):
    trained = node("train", max_steps=2)
    work = _made(tmp_path / "work" / "train" / trained.work_key({}))
    events(work / "events.jsonl", 1, 2, 3, 4, checkpoints=(2, 4))

    def fill(out, work):
        time.sleep(0.2)
        cut(work / "events.jsonl", 2)
        publish(out, work)
        return {}

    with track() as tracker:
        step(tracker, tmp_path, trained, fill)
    assert points("train", "loss") == [(1, 9.0), (2, 8.0)]


def _made(folder):
    folder.mkdir(parents=True)
    return folder


def test_rebuilding_logs_what_changed(track, look, points, tmp_path):
    with track() as tracker:
        step(tracker, tmp_path, node(), lambda out, work: {"size": 1, "rows": 5})
    time.sleep(1)
    with track() as tracker:
        step(tracker, tmp_path, node(), lambda out, work: {"size": 2, "rows": 5}, force=True)
    [run] = look("vocab")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["size"] == 2
    assert points("vocab", "rows") == [(0, 5.0)]


def test_a_stage_whose_result_is_never_told_does_not_stay_open(track, look, tmp_path):
    with track() as tracker, tracker.building(node(), node().identity({}), tmp_path):
        pass
    assert [run.info.status for run in look()] == ["FINISHED", "FINISHED"]
    with track() as tracker:
        step(tracker, tmp_path, node())
    assert look("vocab")[0].data.tags["traduko.content"]


def test_the_model_is_registered_once_for_each_fingerprint(track, client, tmp_path):
    def fill(out, work):
        (out / "model.safetensors").write_text("weights")
        return {}

    def versions():
        return client().search_model_versions(f"name = '{CONFIG.name}'")

    def current():
        return client().get_model_version_by_alias(CONFIG.name, "current").version

    with track() as tracker:
        step(tracker, tmp_path, node("average", last=1), fill)
        first = step(tracker, tmp_path, node("average", last=1), fill)
        step(tracker, tmp_path, node("average", last=2), fill)
    assert [version.source for version in versions() if version.version == 1] == [
        str(first.artifact.folder)
    ]
    assert len(versions()) == 2
    assert current() == 2
    with track() as tracker:
        step(tracker, tmp_path, node("average", last=1), fill)
        assert (len(versions()), current()) == (2, 1)
        again = step(tracker, tmp_path, node("average", last=1), fill, force=True)
    assert len(versions()) == 2
    uri = client().get_model_version_download_uri(CONFIG.name, str(current()))
    assert uri == str(again.artifact.folder), "the version follows the folder"


@pytest.mark.slow
def test_processes_that_open_a_new_root_at_once_share_one_store(tmp_path, look):
    (tmp_path / "mlflow" / "mlflow.db").unlink()
    code = f"""if True:
        from pathlib import Path
        from flows.tracking import Tracker
        from pipeline.recipe import read_recipe
        recipe = read_recipe({str(REPO / "tests" / "tiny.toml")!r})
        input()
        with Tracker(Path({str(tmp_path)!r}), recipe, print) as tracker:
            pass
    """
    start = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    running = [subprocess.Popen(start, cwd=REPO, text=True, **pipes) for _ in range(2)]
    told = [process.communicate("\n")[0] for process in running]
    assert told == ["", ""], "and the terminal stays clean"
    assert [run.info.status for run in look()] == ["FINISHED", "FINISHED"]


def test_a_half_made_store_is_made_again(tmp_path, track, look):
    (tmp_path / "mlflow" / "mlflow.db").unlink()
    (tmp_path / "mlflow" / ".mlflow.db.killed").write_text("half")
    with track():
        pass
    assert len(look()) == 1
    assert not list((tmp_path / "mlflow").glob(".mlflow.db.*"))


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://me:secret@127.0.0.1:{port}", "Connection refused"),
        ("postgresql://me:secret@127.0.0.1:{port}/db", "Connection refused"),
        ("http://me:secret@127.0.0.1:{silent}", "no answer in time"),
        ("/tmp/some/folder", "MlflowException"),
    ],
)
def test_a_store_that_does_not_answer_is_one_clear_line_within_seconds(
    tmp_path, monkeypatch, uri, words
):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = uri.format(port=free_port(), silent=silent.getsockname()[1])
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setitem(mlflow_store.PROBE, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        before = dict(os.environ)
        start = time.perf_counter()
        with pytest.raises(TradukoError) as refused, Tracker(tmp_path, CONFIG, print):
            pass
        assert time.perf_counter() - start < 15
    message = str(refused.value)
    assert "secret" not in message
    assert "\n" not in message
    assert words in message
    assert uri.replace("me:secret", "***") in message
    assert f"unset MLFLOW_TRACKING_URI to keep the record in {tmp_path}/mlflow" in message
    assert {**os.environ, **before} == dict(os.environ)
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in os.environ


def test_a_store_that_cannot_be_read_is_named(tmp_path):
    _made(tmp_path / "mlflow")
    (tmp_path / "mlflow" / "mlflow.db").write_text("no database " * 100)
    with pytest.raises(TradukoError, match=r"mlflow\.db cannot be used: .*Move the folder"):
        Tracker(tmp_path, CONFIG, print).__enter__()


def test_a_store_that_fails_later_stops_nothing_and_is_completed_by_the_next_run(
    track, look, tmp_path, said, monkeypatch
):
    with track() as tracker:
        first = step(tracker, tmp_path, node())

        def fail(*_, **__):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tracker._store.client, "search_runs", fail)
        step(tracker, tmp_path, node("train", max_steps=1))
        step(tracker, tmp_path, node("evaluate"))
    [line] = said
    assert line == (
        f"MLflow at sqlite:///{tmp_path}/mlflow/mlflow.db stopped answering (No space left on "
        "device); the run goes on, its record is completed by the next run"
    )
    assert [run.info.status for run in look()] == ["RUNNING", "FINISHED"]
    with track() as tracker:
        assert step(tracker, tmp_path, node()).artifact == first.artifact
        step(tracker, tmp_path, node("train", max_steps=1))
    assert {run.info.status for run in look()} == {"FINISHED"}
    assert len(look("train")) == 2


class Mortal:
    """An MLflow client that dies before its n-th call."""

    def __init__(self, client, calls):
        self._client = client
        self._left = calls

    def __getattr__(self, name):
        if self._left == 0:
            raise Gone
        self._left -= 1
        return getattr(self._client, name)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_process_killed_between_any_two_calls_leaves_what_the_next_one_completes(
    tmp_path, new_store, monkeypatch
):
    from mlflow import MlflowClient

    monkeypatch.setattr(tracking, "POLL_S", 60.0)
    nodes = [node("train", max_steps=3), node("average")]

    def fill(out, work):
        events(out / "events.jsonl", 1, 2, 3, checkpoints=(2,))
        events(work / "events.jsonl", 1, 2, 3, checkpoints=(2,))
        return {"steps": 3, "loss": 7.0}

    for num_calls in range(40):
        root = tmp_path / str(num_calls)
        _made(root / "mlflow")
        shutil.copy(new_store, root / "mlflow")
        killed = Tracker(root, CONFIG, print).__enter__()
        client = MlflowClient(killed.uri)
        mortal = dataclasses.replace(killed._store, client=Mortal(client, num_calls))
        killed._store = mortal
        with contextlib.suppress(Gone):
            for each in nodes:
                step(killed, root, each, fill)
        die(killed)
        with Tracker(root, CONFIG, print) as tracker:
            for each in nodes:
                step(tracker, root, each, fill)

        check_whole(client, root, killed.run_id)
        if mortal.client._left:
            return
    raise AssertionError("there are more calls than the test allows for")


def check_whole(client, root, killed):
    """One run each for train and average, with all that belongs there; no run is open."""
    assert list((root / "mlflow" / "open").iterdir()) == []
    experiment = client.get_experiment_by_name(CONFIG.name).experiment_id
    runs = client.search_runs([experiment])
    statuses = {run.info.run_id: run.info.status for run in runs}
    assert statuses.pop(killed) == "KILLED"
    assert set(statuses.values()) == {"FINISHED"}
    made = [run for run in runs if "traduko.fingerprint" in run.data.tags]
    assert sorted(run.info.run_name for run in made) == ["average", "train"]
    for run in made:
        losses = client.get_metric_history(run.info.run_id, "loss")
        assert sorted(at.step for at in losses) == [1, 2, 3]
        assert run.data.metrics["steps"] == 3
        assert run.data.tags["traduko.content"]
        kept = [file.path for file in client.list_artifacts(run.info.run_id)]
        assert "manifest.json" in kept
    assert len(client.search_model_versions(f"name = '{CONFIG.name}'")) == 1


def test_a_live_run_is_not_ended_by_another(track, look, tmp_path):
    with track() as first:
        with track():
            pass
        assert {run.info.run_id for run in look() if run.info.status == "RUNNING"} == {first.run_id}
    assert {run.info.status for run in look()} == {"FINISHED"}


def test_a_full_disk_at_the_end_hides_no_error(track):
    def run():
        with Path("/dev/full").open("w") as full, track() as tracker:
            tracker._mark._file.close()
            tracker._mark._file = full
            raise TradukoError("the real one")

    with pytest.raises(TradukoError, match="the real one"):
        run()


def test_any_folder_name_will_do(tmp_path, said):
    root = tmp_path / "ein Ordner, größer als 100%"
    with Tracker(root, CONFIG, said.append) as tracker:
        step(tracker, root, node())
    assert said == []
    assert list((root / "mlflow" / "artifacts").glob("*/artifacts/manifest.json"))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A real `mlflow server`: starts it, or starts it again."""
    folder, port = _made(tmp_path / "server"), free_port()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    running = []

    def start():
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
            *("--port", str(port), "--workers", "1"),
            *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
            *("--artifacts-destination", str(folder / "artifacts")),
        ]
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        log = (folder / "log").open("a")
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
        log.close()
        running.append(process)
        for _ in range(600):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        raise AssertionError("the server never came up")

    def stop():
        process = running.pop()
        os.killpg(process.pid, signal.SIGKILL)  # its own session, begun above
        process.wait()

    start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    yield start, stop
    while running:
        stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def clean_terminal(capfd):
    yield
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("clean_terminal")
def test_a_server_killed_in_the_middle_costs_no_work_and_no_record(
    server, track, look, client, tmp_path, said
):
    start, stop = server

    def fill(out, work):
        events(work / "events.jsonl", 1, 2, checkpoints=(2,))
        eventually(lambda: "loss" in look("train")[0].data.metrics)
        stop()
        events(work / "events.jsonl", 3, 4, checkpoints=(4,))
        publish(out, work)
        return {"steps": 4}

    def average(out, work):
        (out / "model.safetensors").write_text("weights")
        return {}

    with track() as tracker:
        step(tracker, tmp_path, node("dedup"))
        step(tracker, tmp_path, node("train", max_steps=4), fill)
        step(tracker, tmp_path, node("average"), average)
    [line] = said
    assert line.endswith("stopped answering (Connection refused); the run goes on, its record is completed by the next run")  # fmt: skip

    start()
    with track() as second:
        for name, config in (("dedup", {}), ("train", {"max_steps": 4}), ("average", {})):
            assert step(second, tmp_path, node(name, **config)).cached
    assert len(said) == 1
    assert {run.info.status for run in look()} == {"FINISHED"}
    assert [len(look(name)) for name in ("dedup", "train", "average")] == [2, 2, 2]
    producer, _ = look("train")
    history = client().get_metric_history(producer.info.run_id, "loss")
    assert sorted(at.step for at in history) == [1, 2, 3, 4]
    version = client().get_model_version_by_alias(CONFIG.name, "current")
    assert version.source.startswith("mlflow-artifacts:/")
    kept = client().list_artifacts(version.run_id, "model")
    assert [file.path for file in kept] == ["model/model.safetensors"]
