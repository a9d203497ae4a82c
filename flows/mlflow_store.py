"""MLflow's store: opened quietly, initialised once, written in batches.

Only this module and `mlflow_models` import MLflow, when a store is opened: that takes seconds.
"""

import contextlib
import fcntl
import json
import logging
import math
import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

if TYPE_CHECKING:
    import sqlite3

    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

PARENT_TAG = "mlflow.parentRunId"
FINGERPRINT_TAG = "traduko.fingerprint"
CONTENT_TAG = "traduko.content"
MODEL_ALIAS = "current"
"""Of the recipe's last run. MLflow keeps `latest` for itself: the newest version."""

PROBE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}
"""How long a store may take to answer at the start: a wrong address shows at once."""
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", "MLFLOW_HTTP_REQUEST_TIMEOUT": "15"}
"""How long later: some 15 s, enough for a server to be started again."""
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
LOGGERS = {
    "mlflow": logging.WARNING,
    "alembic": logging.WARNING,
    "urllib3.connectionpool": logging.ERROR,
}
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
METRICS_PER_CALL = 500
PARAMS_PER_CALL = 100


class Point(NamedTuple):
    """One value of a metric."""

    key: str
    value: float
    time_ms: int
    step: int


class Record(NamedTuple):
    """What a run of the store holds."""

    run_id: str
    status: str
    started_ms: int
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    """The last value of each."""
    tags: Mapping[str, str]
    artifacts: str
    """Address of its artifacts."""


class DataSet(NamedTuple):
    """What a run was made from."""

    name: str
    digest: str
    source: str


@dataclass(frozen=True)
class Store:
    """One experiment."""

    client: "MlflowClient"
    experiment: str
    sees_folders: bool
    """Whether it reads this machine's disk itself; otherwise files are sent to it."""

    def create(self, name: str, tags: Mapping[str, str], started_ms: int | None = None) -> Record:
        """A new run, RUNNING."""
        started_ms = now_ms() if started_ms is None else started_ms
        return _record(self.client.create_run(self.experiment, started_ms, dict(tags), name))

    def find(self, *conditions: str) -> list[Record]:
        """The runs that meet all conditions, the oldest first."""
        found = self.client.search_runs(
            [self.experiment], " and ".join(conditions), order_by=["attributes.start_time ASC"]
        )
        return [_record(run) for run in found]

    def places(self, run_id: str) -> set[tuple[str, int]]:
        """Where a run has metrics: key and step."""
        keys = self.client.get_run(run_id).data.metrics
        histories = {key: self.client.get_metric_history(run_id, key) for key in keys}
        return {(key, metric.step) for key in keys for metric in histories[key]}

    def log(
        self,
        run_id: str,
        *,
        params: Mapping[str, str] | None = None,
        points: Sequence[Point] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add to a run, in as few calls as its limits allow."""
        from mlflow.entities import Metric, Param, RunTag

        rows = [Param(key, value) for key, value in (params or {}).items()]
        marks = [RunTag(key, value) for key, value in (tags or {}).items()]
        metrics = [Metric(point.key, point.value, point.time_ms, point.step) for point in points]
        num_calls = max(
            math.ceil(len(metrics) / METRICS_PER_CALL), math.ceil(len(rows) / PARAMS_PER_CALL), 1
        )
        for call in range(num_calls):
            self.client.log_batch(
                run_id,
                metrics[call * METRICS_PER_CALL :][:METRICS_PER_CALL],
                rows[call * PARAMS_PER_CALL :][:PARAMS_PER_CALL],
                marks if call == num_calls - 1 else (),
            )

    def made_from(self, run_id: str, data: Sequence[DataSet]) -> None:
        """Link what a run was made from; twice is once."""
        from mlflow.entities import Dataset, DatasetInput

        inputs = [
            DatasetInput(
                Dataset(entry.name, entry.digest, "local", json.dumps({"uri": entry.source}))
            )
            for entry in data
        ]
        if inputs:
            self.client.log_inputs(run_id, inputs)

    def upload(self, run_id: str, folder: Path, to: str | None = None) -> None:
        """Keep a folder's files with a run."""
        self.client.log_artifacts(run_id, str(folder), to)

    def go_on(self, run_id: str) -> None:
        """Set a run RUNNING again."""
        self.client.update_run(run_id, "RUNNING")

    def end(self, run_id: str, status: Status, ended_ms: int | None = None) -> None:
        """End a run."""
        self.client.set_terminated(run_id, status, ended_ms)

    def register(self, name: str, run: Record, content: str, folder: Path) -> None:
        """Make a run's model the current version of a registered one, once for each fingerprint.

        The version points at the folder where the store can read that; else its files are sent.
        """
        same = f"tags.`{FINGERPRINT_TAG}` = '{run.tags[FINGERPRINT_TAG]}'"
        versions = self.client.search_model_versions(f"name = '{name}' and {same}")
        good = [version for version in versions if _is_whole(version, content)]
        for version in versions:
            if version not in good[:1]:
                self.client.delete_model_version(name, version.version)
        version = good[0] if good else self._add_version(name, run, content, folder)
        self.client.set_registered_model_alias(name, MODEL_ALIAS, version.version)

    def _add_version(self, name: str, run: Record, content: str, folder: Path) -> "ModelVersion":
        source = str(folder)
        if not self.sees_folders:
            self.upload(run.run_id, folder, "model")
            source = f"{run.artifacts}/model"
        if not self.client.search_registered_models(f"name = '{name}'", max_results=1):
            self.client.create_registered_model(name)
        tags = {FINGERPRINT_TAG: run.tags[FINGERPRINT_TAG], CONTENT_TAG: content}
        return self.client.create_model_version(name, source, run.run_id, tags)


def open_store(uri: str, name: str, folder: Path) -> Store:
    """The experiment of that name, made if it is new.

    Args:
        uri: Of the tracking store.
        name: Of the experiment.
        folder: Its `artifacts` holds the runs' files, unless the store decides that.

    Raises:
        Exception: Whatever MLflow raises if the store does not answer within seconds.
    """
    from mlflow import MlflowClient

    path = _sqlite_path(uri)
    is_server = uri.startswith(("http://", "https://"))
    artifacts = ((path.parent if path else folder) / "artifacts").as_uri()
    with _overriding(PROBE), warnings.catch_warnings():
        # SQLAlchemy, of what MLflow calls: "The ``noload`` loader strategy is deprecated".
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy", DeprecationWarning)
        _check_answers(uri)
        if path:
            _initialise(path, artifacts)
        client = MlflowClient(uri)
        experiment = _experiment(client, name, None if is_server else artifacts)
    return Store(client, experiment, sees_folders=not is_server)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """MLflow reports nothing to its makers, prints nothing, and waits for a server but briefly."""
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    import mlflow  # noqa: F401 - sets up its loggers, so theirs are set after that

    loggers = {logging.getLogger(name): level for name, level in LOGGERS.items()}
    before = {logger: logger.level for logger in loggers}
    unset = {name: value for name, value in PATIENCE.items() if name not in os.environ}
    try:
        for logger, level in loggers.items():
            logger.setLevel(level)
        with _overriding(unset):
            yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time. The kernel frees a killed holder's lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def now_ms() -> int:
    """Milliseconds since 1970, of whole seconds as in manifests: no run begins after its end."""
    return int(datetime.now(UTC).timestamp()) * 1000


@contextlib.contextmanager
def _overriding(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _sqlite_path(uri: str) -> Path | None:
    """The file of a sqlite store."""
    rest = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(rest).absolute() if uri.startswith("sqlite:///") and rest else None


def _check_answers(uri: str) -> None:
    """Fail soon if nothing listens where a database should: MLflow would try for minutes."""
    parts = urlsplit(uri)
    port = DATABASE_PORTS.get(parts.scheme.partition("+")[0])
    if parts.hostname and port:
        socket.create_connection((parts.hostname, parts.port or port), timeout=5).close()


def _initialise(path: Path, artifacts: str) -> None:
    """Make a new store's tables, whole or not at all: half-made ones could never be opened."""
    if path.exists():
        return
    with locked(path.with_name(f"{path.name}.lock")):
        if path.exists():
            return
        for left_over in path.parent.glob(f".{path.name}.*"):
            left_over.unlink()
        new = path.with_name(f".{path.name}.{uuid4().hex}")
        _make_tables(new, artifacts)
        new.replace(path)


def _make_tables(path: Path, artifacts: str) -> None:
    """Fill a new sqlite file. It is written to the disk once, not after each of many changes."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy import Engine, event

    def write_later(connection: "sqlite3.Connection", _: object) -> None:
        if str(path) in {row[2] for row in connection.execute("PRAGMA database_list")}:
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", write_later)
    try:
        store = SqlAlchemyStore(f"sqlite:///{path}", artifacts)  # type: ignore[no-untyped-call]
    finally:
        event.remove(Engine, "connect", write_later)
    store.engine.dispose()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _experiment(client: "MlflowClient", name: str, artifacts: str | None) -> str:
    """Find or make it, whoever else does so at the same time."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, artifacts)
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def _is_whole(version: "ModelVersion", content: str) -> bool:
    source = version.source or ""
    is_folder = urlsplit(source).scheme == ""
    return version.tags.get(CONTENT_TAG) == content and (not is_folder or Path(source).is_dir())


def _record(run: "Run") -> Record:
    info, data = run.info, run.data
    return Record(
        run_id=info.run_id,
        status=info.status,
        started_ms=info.start_time or 0,
        params=data.params,
        metrics=data.metrics,
        tags=data.tags,
        artifacts=info.artifact_uri,
    )
