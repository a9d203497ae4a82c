"""The record in MLflow: complete, once, with the right status."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flows.run import Result
from pipeline.artifact import Root
from pipeline.errors import TradukoError
from pipeline.stages import Node, Stage
from tests.flows.tracking.steps import (
    CONFIG,
    REPO,
    Gone,
    cut,
    die,
    events,
    eventually,
    made,
    node,
    publish,
    step,
)


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
    with contextlib.suppress(Gone), killed.building(trained, trained.identity({}), made(work)):
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
    work = made(tmp_path / "work" / "train" / trained.work_key({}))
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
    work = made(tmp_path / "work" / "train" / trained.work_key({}))
    events(work / "events.jsonl", 1, 2, 3, 4, checkpoints=(2, 4))

    def fill(out, work):
        time.sleep(0.2)
        cut(work / "events.jsonl", 2)
        publish(out, work)
        return {}

    with track() as tracker:
        step(tracker, tmp_path, trained, fill)
    assert points("train", "loss") == [(1, 9.0), (2, 8.0)]


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
