"""One recipe on one root: each stage's artifact found or built."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from flows.downloads import fetch_all
from flows.progress import Display
from pipeline.artifact import MANIFEST, Artifact, Identity, Json, Root, check_writable, write_json
from pipeline.capacity import task_need
from pipeline.compute import Compute
from pipeline.config import RunConfig
from pipeline.dag import (
    PINNED_OTHERWISE,
    Planned,
    Selection,
    nodes,
    plan,
    plan_node,
    read_record,
    record,
)
from pipeline.errors import InputError
from pipeline.fetching.address import recorded
from pipeline.fetching.fetched import Files
from pipeline.fetching.lock import LOCK_FILE, Lock, Pin
from pipeline.file_digests import FileDigests
from pipeline.job import Job
from pipeline.recipe import SHIPPED, find_recipe, read_recipe
from pipeline.sources import FileSource
from pipeline.stages import Node
from pipeline.turns import unheard


@dataclass(frozen=True)
class Result:
    """One node of a finished run."""

    node: Node
    artifact: Artifact
    cached: bool
    took_s: float
    reason: str = ""
    """Why it was built; empty where it was there."""

    @property
    def stats(self) -> Json:
        """What the stage counted."""
        return self.artifact.stats


class Watcher(Protocol):
    """Told what is built: tracking. It never changes what comes out."""

    def building(self, node: Node, identity: Identity, work: Path) -> AbstractContextManager[None]:
        """Around the building of one artifact; `work` may hold its event file."""
        ...

    def finished(self, result: Result) -> None:
        """An artifact was found or built."""
        ...


class Unwatched:
    """Nobody is told."""

    def building(self, node: Node, identity: Identity, work: Path) -> AbstractContextManager[None]:
        """Nothing around it."""
        del node, identity, work
        return contextlib.nullcontext()

    def finished(self, result: Result) -> None:
        """Nothing to do."""


Step = Callable[[], Result]
"""Finds or builds one node's artifact."""


def call(node: Node, step: Step) -> Result:
    """Take a step here and now."""
    del node
    return step()


@dataclass(frozen=True)
class Workplace:
    """Where and how a run's work is done; never what comes out."""

    compute: Compute
    display: Display
    watcher: Watcher = field(default_factory=Unwatched)
    take: Callable[[Node, Step], Result] = call
    """Takes a node's step: here, or as an orchestrator's task with retries."""


@dataclass(frozen=True)
class Run:
    """One recipe on one root."""

    config: RunConfig
    root: Root
    selection: Selection
    lock: Lock
    """What addresses gave when they were used for the first time."""

    def plan(self) -> list[Planned]:
        """What executing it would do, and why."""
        return plan(self.nodes(), self.root, self.selection, read_record(self._record_path))

    def alone(self) -> AbstractContextManager[None]:
        """Around executing it: of a recipe, one run builds in a root at a time, the others wait.

        Raises:
            TradukoError: If the root takes no files.
        """
        check_writable(self.root.folder)
        name = self.config.name
        waits = f"another run of `{name}` is at work in {self.root.folder}"
        return self.root.turn(f"run-{name}", f"a run of {name}", waits)

    def execute(self, workplace: Workplace) -> list[Result]:
        """Build what is not there, inputs before what is made from them.

        Raises:
            InputError: If a stage that is not selected would have to be built.
        """
        self._check_stages()
        check_writable(self.root.folder)
        last = read_record(self._record_path)
        graph = self.nodes()
        fetch_all(self._files, self._to_fetch(graph), workplace.display)
        done: dict[str, Result] = {}
        downloads = [node for node in graph if _is_download(node)]
        for node in downloads:
            self._take(node, done, last, workplace)
        self.settle(done.values())
        for node in graph[len(downloads) :]:
            self._take(node, done, last, workplace)
        return list(done.values())

    def _check_stages(self) -> None:
        """Raise what a later stage would fail with, and is known now."""
        for planned in self.plan():
            check = planned.node.stage.check
            if check and planned.status != "cached":
                check(self.config)

    def settle(self, results: Iterable[Result]) -> None:
        """Once all downloads are there: pin what their addresses gave, remove what was fetched."""
        pins, files = {}, []
        for result in results:
            for place, file in _files_of(result.node).items():
                files.append(file)
                if file.url and not file.sha256:
                    found = result.stats[place]
                    pins[recorded(file.url)] = Pin(found["sha256"], found["bytes"])
        self.lock.add(pins)
        self._files.clear(files)

    def nodes(self) -> list[Node]:
        """The selected part of the recipe's graph, in order."""
        digests = FileDigests(self.root.folder / "work" / "file-digests.json")
        return self.selection.of_graph(nodes(self.config, digests, self.lock.pins()))

    def _to_fetch(self, graph: Iterable[Node]) -> list[FileSource]:
        """The files of the downloads that will be built."""
        return [
            file
            for node in graph
            if self._is_chosen(node)
            for file in _files_of(node).values()
            if plan_node(node, self.root, {}, self.selection, {}).status != "cached"
        ]

    def _take(self, node: Node, done: dict[str, Result], last: Json, workplace: Workplace) -> None:
        """Find or build one node's artifact, and tell everybody."""
        planned = plan_node(node, self.root, _inputs(node, done), self.selection, last)
        result = workplace.take(node, partial(self._step, node, done, workplace))
        result = dataclasses.replace(result, reason="" if result.cached else planned.reason)
        done[node.name] = result
        self._remember(result, done)
        workplace.watcher.finished(result)
        workplace.display.say(line(result))

    def _step(
        self, node: Node, done: dict[str, Result], workplace: Workplace, *, deep: bool = False
    ) -> Result:
        """Find or build one node's artifact; with `deep`, hash the files of one that is there.

        Before a costly stage is built its inputs are hashed, and damaged ones built again.
        """
        if node.stage.checks_inputs and not self._is_there(node, done):
            for name in node.inputs:
                checked = self._step(done[name].node, done, workplace, deep=True)
                done[name] = done[name] if checked.cached else checked
        start = time.perf_counter()
        try:
            artifact, cached = self.root.produce(
                node.identity(_inputs(node, done)),
                lambda out, work: self._build(node, done, workplace, out, work),
                work_key=node.work_key(_inputs(node, done)),
                force=self._is_chosen(node) and not deep and self._is_outdated(node),
                deep=deep,
            )
        finally:
            workplace.display.end()
        return Result(node, artifact, cached, time.perf_counter() - start)

    def _build(
        self, node: Node, done: Mapping[str, Result], workplace: Workplace, out: Path, work: Path
    ) -> Json:
        if not self._is_chosen(node):
            raise _left_out(node)
        inputs, display = _inputs(node, done), workplace.display
        display.begin(node.name)
        job = Job(
            out=out,
            work=work,
            compute=workplace.compute,
            settings=self.config.compute,
            files=self._files,
            progress=display.progress,
            say=display.say,
            need=task_need(self.config.compute, node.stage.name),
        )
        with workplace.watcher.building(node, node.identity(inputs), work):
            return node.stage.run(node, self.config, inputs, job)

    def _is_chosen(self, node: Node) -> bool:
        return node.stage.name in self.selection.stages

    def _is_outdated(self, node: Node) -> bool:
        """Whether what may be there must be built again."""
        if self.selection.force or not node.pins:
            return self.selection.force
        planned = plan_node(node, self.root, {}, self.selection, {})
        return planned.reason == PINNED_OTHERWISE

    def _is_there(self, node: Node, done: Mapping[str, Result]) -> bool:
        return (self.root.place(node.identity(_inputs(node, done))) / MANIFEST).exists()

    @property
    def page(self) -> Path:
        """The file of its report for people."""
        return self.root.folder / "reports" / self.config.name / "index.html"

    @property
    def _files(self) -> Files:
        folder = self.root.folder / "work" / "fetched"
        return Files(folder, self.config.download.mirrors, self.lock, self.root.say)

    @property
    def _record_path(self) -> Path:
        return self.root.folder / "runs" / f"{self.config.name}.json"

    def _remember(self, result: Result, done: Mapping[str, Result]) -> None:
        """What a later plan compares with."""
        known = read_record(self._record_path)
        known[result.node.name] = record(
            result.node, result.node.identity(_inputs(result.node, done))
        )
        self._record_path.parent.mkdir(exist_ok=True)
        write_json(self._record_path, known)


def make_run(  # noqa: PLR0913 - the options of every command that takes a recipe
    recipe: str,
    overrides: Mapping[str, Any],
    *,
    only: str | None = None,
    start: str | None = None,
    force: bool = False,
    root: str | None = None,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    remind: Callable[[str], None] = unheard,
) -> Run:
    """A recipe and where it goes, checked before anything runs.

    The root is the one given, else TRADUKO_ROOT's, the recipe's, or `artifacts` in this folder.

    Raises:
        ConfigError: If the recipe or an override is wrong.
    """
    config = read_recipe(recipe, overrides)
    folder = root_folder(root, environment, config.root)
    lock = Lock(_lock_folder(recipe, folder) / LOCK_FILE, say)
    return Run(config, Root(folder, say, remind), Selection.of(only, start, force=force), lock)


def root_folder(
    given: str | None, environment: Mapping[str, str], of_recipe: str | None = None
) -> Path:
    """The root given, else TRADUKO_ROOT's, the recipe's, or `artifacts` in this folder."""
    named = given or environment.get("TRADUKO_ROOT") or of_recipe or "artifacts"
    return Path(named).expanduser().resolve()


def _lock_folder(recipe: str, root: Path) -> Path:
    """Beside a recipe of the user's own; in the root for one that comes with Traduko."""
    folder = find_recipe(recipe).resolve().parent
    return root if folder == SHIPPED.resolve() else folder


def is_done(planned: Iterable[Planned], selection: Selection) -> bool:
    """Whether nothing is left to build."""
    return not selection.force and all(step.status == "cached" for step in planned)


def check_selection(planned: Iterable[Planned], selection: Selection) -> None:
    """Refuse to begin what could not be finished.

    Raises:
        InputError: If a stage that is not selected would have to be built.
    """
    for step in planned:
        if step.status != "cached" and step.node.stage.name not in selection.stages:
            raise _left_out(step.node)


def _left_out(node: Node) -> InputError:
    return InputError(
        f"`{node.name}` is not built, and this run leaves it out: "
        "run without --only and --from first."
    )


def cached_results(planned: Iterable[Planned]) -> list[Result]:
    """The results of a run in which nothing is left to build."""
    return [
        Result(step.node, step.artifact, cached=True, took_s=0.0)
        for step in planned
        if step.artifact
    ]


def document(run: Run, results: Iterable[Result], mlflow_run_id: str | None = None) -> Json:
    """A run as one JSON value: the interface of `traduko run --json`."""
    results = list(results)
    models = [str(result.artifact.folder) for result in results if result.node.name == "average"]
    scores = [result.stats["scores"] for result in results if result.node.name == "evaluate"]
    return {
        "recipe": run.config.name,
        "root": str(run.root.folder),
        "stages": [
            {
                "stage": result.node.stage.name,
                "source": result.node.source.name if result.node.source else None,
                "fingerprint": result.artifact.manifest.fingerprint,
                "folder": str(result.artifact.folder),
                "cached": result.cached,
                "took_s": round(result.took_s, 3),
                "stats": result.stats,
            }
            for result in results
        ],
        "scores": scores[0] if scores else {},
        "model": models[0] if models else None,
        "report": str(run.page) if run.page.exists() else None,
        "mlflow_run_id": mlflow_run_id,
    }


def line(result: Result) -> str:
    """`clean:europarl  built in 3.2 s  29,000 rows  (config …)`."""
    how = "cached" if result.cached else f"built in {result.took_s:.1f} s"
    why = f"  ({result.reason})" if result.reason not in {"", "never built"} else ""
    return f"{result.node.name:<26} {how:<18} {summary(result.stats)}{why}".rstrip()


def _is_download(node: Node) -> bool:
    return node.stage.name == "download"


def _files_of(node: Node) -> dict[str, FileSource]:
    """By place, what a download is made of."""
    return node.source.files if _is_download(node) and node.source else {}


def _inputs(node: Node, done: Mapping[str, Result]) -> dict[str, Artifact]:
    return {name: done[name].artifact for name in node.inputs}


def summary(stats: Json) -> str:
    """The numbers of a stage's statistics, in a few words."""
    words = []
    if "rows_kept" in stats:
        words.append(f"{stats['rows_kept']:,} of {stats['rows_in']:,} pairs kept")
    for key in ("rows", "size", "steps", "dev_perplexity", "parameters"):
        if key in stats:
            value = stats[key]
            words.append(f"{value:,.2f} {key}" if isinstance(value, float) else f"{value:,} {key}")
    return ", ".join(words).replace("_", " ")
