"""The record in MLflow when its store is new, silent, full or killed, or the run is."""

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import mlflow_store, tracking
from flows.tracking import Tracker
from pipeline.errors import TradukoError
from tests.flows.tracking.steps import (
    CONFIG,
    REPO,
    Gone,
    die,
    events,
    eventually,
    made,
    node,
    publish,
    step,
)


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
    made(tmp_path / "mlflow")
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
        made(root / "mlflow")
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
    folder, port = made(tmp_path / "server"), free_port()
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
