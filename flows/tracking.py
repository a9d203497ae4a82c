"""What MLflow shows of a pipeline run: taken from manifests and event files, never sent by a stage.

A parent run for each pipeline run; a child for each stage fingerprint, the same across attempts and
pipeline runs; a light child, tagged `cached`, where an artifact was there already. What the store
holds is read back from it, so a record goes on where it stopped, however that came about.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from flows.mlflow_content import (
    curves,
    first_line,
    is_news,
    made_from,
    masked,
    numbers,
    params,
    reason,
    started_ms,
    status_after,
    write_samples,
)
from flows.mlflow_store import (
    CONTENT_TAG,
    FINGERPRINT_TAG,
    PARENT_TAG,
    Point,
    Record,
    Status,
    Store,
    locked,
    now_ms,
    open_store,
    quietly,
)
from pipeline.artifact import Identity
from pipeline.config import RunConfig
from pipeline.errors import TradukoError
from pipeline.events import EVENTS_FILE
from pipeline.stages import Node

if TYPE_CHECKING:
    from flows.run import Result

T = TypeVar("T")
POLL_S = 2.0
STAGE_TAG = "traduko.stage"
SOURCE_TAG = "traduko.source"
FOLDER_TAG = "traduko.folder"
ERROR_TAG = "traduko.error"
RUN_TAG = "traduko.run"
"""Shared by a pipeline run's own run and those that it worked on last."""
ENDED: dict[str, Status] = {"FINISHED": "FINISHED", "FAILED": "FAILED"}
TOOLS = ("traduko", "torch", "ray", "sentencepiece", "mlflow")
"""Their versions are recorded."""


class Tracker:
    """Records one pipeline run, from `with` to its end.

    Once the store has answered, no failure of it stops the run: the next one completes the record.
    """

    run_id: str | None = None
    """Of the parent run."""

    def __init__(self, root: Path, config: RunConfig, say: Callable[[str], None]):
        self._folder = root.absolute() / "mlflow"
        self._config = config
        self._say = say
        self._own_address = f"sqlite:///{self._folder}/mlflow.db"
        self._address = os.environ.get("MLFLOW_TRACKING_URI") or self._own_address
        self.uri = masked(self._address)
        """Of the store, without a password."""
        self._id = uuid4().hex
        self._store: Store | None = None
        self._logged: dict[str, set[tuple[str, int]]] = {}
        """By run, the places of its metrics: key and step."""
        self._under_way: set[str] = set()
        """Stage runs that were begun and are not complete."""
        self._telling = threading.Lock()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Tracker":
        """Open the store and begin the parent run.

        Raises:
            TradukoError: If the store does not answer, or cannot be used.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(quietly())
            try:
                self._begin(stack)
            except Exception as error:  # noqa: BLE001 - MLflow's, its database's, the network's, …
                raise self._unusable(error) from None
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the parent run, and stage runs whose result was not told."""
        with self._stack:
            self._mark.write(status_after(error))
            for run_id in (*self._under_way, *filter(None, [self.run_id])):
                self._try(partial(_end, run_id=run_id, error=error))
            if self._store:
                self._mark.remove()

    @contextlib.contextmanager
    def building(self, node: Node, identity: Identity, work: Path) -> Iterator[None]:
        """Around the building of one artifact; `work` may get an event file, which is followed."""
        run_id = self._try(lambda store: self._start(store, node, identity))
        if not run_id:
            yield
            return

        def log() -> None:
            path = work / EVENTS_FILE
            self._try(lambda store: self._log_new(store, run_id, curves(path, durable=True)))

        try:
            with _Tail(work / EVENTS_FILE, log):
                yield
        except BaseException as error:
            self._try(partial(self._stop, run_id=run_id, error=error))
            raise

    def finished(self, result: "Result") -> None:
        """An artifact was found or built: after this its run is complete."""
        self._try(lambda store: self._finish(store, result))

    def attach(self, report: Path) -> None:
        """Put the files of a folder beside the parent run."""
        run_id = self.run_id
        if run_id:
            self._try(lambda store: store.upload(run_id, report, "report"))

    def _begin(self, stack: contextlib.ExitStack) -> None:
        store = open_store(self._address, self._config.name, self._folder)
        scope = hashlib.sha256(f"{self._address} {store.experiment}".encode()).hexdigest()[:8]
        with locked(self._folder / "lock"):
            _end_abandoned(store, self._folder / "open", scope)
            # The mark comes first: whenever the process is killed, the next one finds its runs.
            self._mark = stack.enter_context(_Mark(self._folder / "open" / f"{scope}-{self._id}"))
        parent = store.create(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}", self._parent_tags())
        config = self._config.model_dump(
            mode="json", exclude={"root": True, "download": {"mirrors": True}}
        )
        store.log(parent.run_id, params=params(config))
        self._store, self.run_id = store, parent.run_id

    def _parent_tags(self) -> dict[str, str]:
        versions = {f"version.{name}": importlib.metadata.version(name) for name in TOOLS}
        return {
            RUN_TAG: self._id,
            "traduko.recipe": self._config.name,
            "traduko.seed": str(self._config.seed),
            "traduko.root": str(self._folder.parent),
            "traduko.host": socket.gethostname(),
            "version.python": platform.python_version(),
            **versions,
        }

    def _child_tags(self, node: Node) -> dict[str, str]:
        source = {SOURCE_TAG: node.source.name} if node.source else {}
        place = {PARENT_TAG: self.run_id or "", RUN_TAG: self._id}
        return {**place, STAGE_TAG: node.stage.name, **source}

    def _stage_run(self, store: Store, node: Node, fingerprint: str, begun_ms: int) -> Record:
        """The run of a stage fingerprint; if it is new, under this pipeline run."""
        with locked(self._folder / "lock"):
            found = store.find(
                f"tags.`{FINGERPRINT_TAG}` = '{fingerprint}'",
                f"tags.`{STAGE_TAG}` = '{node.stage.name}'",
            )
            if found:
                return found[0]
            tags = {**self._child_tags(node), FINGERPRINT_TAG: fingerprint}
            run = store.create(node.name, tags, begun_ms)
        self._logged[run.run_id] = set()
        return run

    def _start(self, store: Store, node: Node, identity: Identity) -> str:
        run = self._stage_run(store, node, identity.fingerprint, now_ms())
        self._under_way.add(run.run_id)
        store.log(run.run_id, params=_new_params(node, run), tags={RUN_TAG: self._id})
        if run.status != "RUNNING":
            store.go_on(run.run_id)
        return run.run_id

    def _stop(self, store: Store, run_id: str, error: BaseException) -> None:
        _end(store, run_id, error)
        self._under_way.discard(run_id)

    def _finish(self, store: Store, result: "Result") -> None:
        node, artifact, manifest = result.node, result.artifact, result.artifact.manifest
        run = self._stage_run(store, node, manifest.fingerprint, started_ms(manifest))
        is_complete = run.status == "FINISHED" and run.tags.get(CONTENT_TAG) == manifest.content
        if node.stage.name == "average":
            with locked(self._folder / "lock"):
                store.register(self._config.name, run, manifest.content, artifact.folder)
        if node.stage.name == "evaluate" and self.run_id:
            store.log(self.run_id, points=numbers(artifact.stats, now_ms()))
        if not is_complete:
            self._complete(store, run, result)
        if result.cached:
            tags = {**self._child_tags(node), "cached": "true", "producer_run_id": run.run_id}
            store.end(store.create(node.name, tags).run_id, "FINISHED")

    def _complete(self, store: Store, run: Record, result: "Result") -> None:
        """Log what is not there yet. The end comes last: without it, all is looked at again."""
        manifest, folder = result.artifact.manifest, result.artifact.folder
        with tempfile.TemporaryDirectory() as samples:
            write_samples(result.artifact, Path(samples))
            store.upload(run.run_id, Path(samples))
        store.made_from(run.run_id, made_from(manifest, self._folder.parent))
        points = curves(folder / EVENTS_FILE)
        self._log_new(store, run.run_id, points)
        drawn = {point.key for point in points}
        ended_ms = started_ms(manifest) + round(manifest.took_s * 1000)
        counted = numbers({"took_s": manifest.took_s, **manifest.stats}, ended_ms)
        mended = {ERROR_TAG: ""} if ERROR_TAG in run.tags else {}
        store.log(
            run.run_id,
            params=_new_params(result.node, run),
            points=[
                point for point in counted if point.key not in drawn and is_news(point, run.metrics)
            ],
            tags={CONTENT_TAG: manifest.content, FOLDER_TAG: str(folder), **mended},
        )
        store.end(run.run_id, "FINISHED", max(ended_ms, run.started_ms))
        self._under_way.discard(run.run_id)

    def _log_new(self, store: Store, run_id: str, points: Sequence[Point]) -> None:
        """Log the points whose metric has none at their step: a step done twice counts once."""
        if run_id not in self._logged:
            self._logged[run_id] = store.places(run_id)
        logged = self._logged[run_id]
        by_place = {(point.key, point.step): point for point in points}
        new = {place: point for place, point in by_place.items() if place not in logged}
        if new:
            store.log(run_id, points=list(new.values()))
            logged.update(new)

    def _try(self, act: Callable[[Store], T]) -> T | None:
        """Do it, unless the store has failed already; its first failure is told."""
        store = self._store
        if store is None:
            return None
        try:
            return act(store)
        except Exception as error:  # noqa: BLE001 - whatever it is, the record must not stop the run
            with self._telling:
                is_first, self._store = self._store is not None, None
            if is_first:
                self._say(
                    f"MLflow at {self.uri} stopped answering ({self._reason(error)}); the run goes "
                    "on, its record is completed by the next run"
                )
            return None

    def _unusable(self, error: Exception) -> TradukoError:
        if self._address != self._own_address:
            return TradukoError(
                f"MLflow at {self.uri} must answer, but: {self._reason(error)}. Start it, or unset "
                f"MLFLOW_TRACKING_URI to keep the record in {self._folder}."
            )
        return TradukoError(
            f"MLflow's store {self._folder}/mlflow.db cannot be used: {self._reason(error)}. Move "
            f"the folder {self._folder} away and run again: no artifact is in it."
        )

    def _reason(self, error: Exception) -> str:
        return reason(error).replace(self._address, self.uri)


class _Tail:
    """Follows an event file from a thread.

    What an earlier attempt left in it counts once this one has written to it: until then, it may
    hold steps that are about to be cut off.
    """

    def __init__(self, path: Path, log: Callable[[], None]):
        self._path = path
        self._log = log
        self._seen = _version(path)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="traduko-tail", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _follow(self) -> None:
        while not self._over.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        version = _version(self._path)
        if version != self._seen:
            self._seen = version
            self._log()


class _Mark:
    """A pipeline run's file on the disk, locked while it lives; its words are how it ended.

    If the process is killed, or the store is gone in the end, the next run puts that right.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("w", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __enter__(self) -> "_Mark":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._file.close()

    def write(self, status: Status) -> None:
        """How it ended. On a full disk, an empty file: killed."""
        with contextlib.suppress(OSError):
            self._file.write(status)
            self._file.flush()

    def remove(self) -> None:
        """The store knows."""
        self._path.unlink(missing_ok=True)


def _end_abandoned(store: Store, marks: Path, scope: str) -> None:
    """End the runs of pipeline runs that are over without the store's knowing."""
    for path in sorted(marks.glob(f"{scope}-*")):
        with path.open("r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            status = ENDED.get(file.read(), "KILLED")
        of_it = f"tags.`{RUN_TAG}` = '{path.name.removeprefix(f'{scope}-')}'"
        for run in store.find("attributes.status = 'RUNNING'", of_it):
            is_parent, is_link = PARENT_TAG not in run.tags, "cached" in run.tags
            # A stage's run that is still open is not complete, however the pipeline run ended.
            store.end(run.run_id, status if is_parent else "FINISHED" if is_link else "KILLED")
        path.unlink()


def _end(store: Store, run_id: str, error: BaseException | None) -> None:
    if error:
        store.log(run_id, tags={ERROR_TAG: first_line(error)})
    store.end(run_id, status_after(error))


def _new_params(node: Node, run: Record) -> dict[str, str]:
    """MLflow refuses to change a parameter: those that are there stay."""
    known = params(node.config).items()
    return {key: value for key, value in known if key not in run.params}


def _version(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
