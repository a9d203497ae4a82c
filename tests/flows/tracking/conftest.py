"""A store, trackers on it, and what they have recorded."""

import shutil

import pytest

from flows import mlflow_store, tracking
from flows.tracking import Tracker
from tests.flows.tracking.steps import CONFIG


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
