"""One recipe on one root: each stage's artifact built or found."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.progress import Display
from pipeline.artifact import Artifact, Json, Root, check_writable, write_json
from pipeline.compute import Compute
from pipeline.config import RunConfig
from pipeline.dag import Node, Planned, Selection, nodes, plan, read_record, record
from pipeline.errors import InputError
from pipeline.file_digests import FileDigests
from pipeline.job import Job


@dataclass(frozen=True)
class Result:
    """One node of a finished run."""

    node: Node
    artifact: Artifact
    cached: bool
    took_s: float


@dataclass(frozen=True)
class Run:
    """One recipe on one root."""

    config: RunConfig
    root: Root
    selection: Selection

    def plan(self) -> list[Planned]:
        """What executing it would do, and why."""
        return plan(self._nodes(), self.root, self.selection, read_record(self._record_path))

    def execute(self, compute: Compute, display: Display) -> list[Result]:
        """Build what is not there, inputs before what is made from them.

        Raises:
            InputError: If a stage that is not selected would have to be built.
        """
        check_writable(self.root.folder)
        done: dict[str, Result] = {}
        for node in self._nodes():
            result = self._step(node, done, compute, display)
            done[node.name] = result
            self._remember(result, done)
            display.say(_line(result))
        return list(done.values())

    def _step(
        self,
        node: Node,
        done: Mapping[str, Result],
        compute: Compute,
        display: Display,
        deep: bool = False,
    ) -> Result:
        """Find or build one node's artifact; with `deep`, hash the files of one that is there."""
        if node.stage.checks_inputs and not self._is_there(node, done):
            checked = {name: self._step(done[name].node, done, compute, display, True) for name in node.inputs}  # fmt: skip
            done = {**done, **checked}
        inputs = {name: done[name].artifact for name in node.inputs}
        chosen = node.stage.name in self.selection.stages
        start = time.perf_counter()

        def build(out: Path, work: Path) -> Json:
            if not chosen:
                raise InputError(
                    f"`{node.name}` is not built, and this run leaves it out: "
                    "run without --only and --from first."
                )
            display.begin(node.name)
            mirrors = self.config.download.mirrors
            job = Job(
                out, work, compute, self.config.compute, mirrors, display.progress, display.say
            )
            return node.stage.run(node, self.config, inputs, job)

        try:
            artifact, cached = self.root.produce(
                node.identity(inputs),
                build,
                work_key=node.work_key(inputs),
                force=chosen and self.selection.force and not deep,
                deep=deep,
            )
        finally:
            display.end()
        return Result(node, artifact, cached, time.perf_counter() - start)

    def _is_there(self, node: Node, done: Mapping[str, Result]) -> bool:
        inputs = {name: done[name].artifact for name in node.inputs}
        return (self.root.place(node.identity(inputs)) / "manifest.json").exists()

    def _nodes(self) -> list[Node]:
        digests = FileDigests(self.root.folder / "work" / "file-digests.json")
        return self.selection.of_graph(nodes(self.config, digests))

    @property
    def _record_path(self) -> Path:
        return self.root.folder / "runs" / f"{self.config.name}.json"

    def _remember(self, result: Result, done: Mapping[str, Result]) -> None:
        """What a later plan compares with."""
        inputs = {name: done[name].artifact for name in result.node.inputs}
        known = read_record(self._record_path)
        known[result.node.name] = record(result.node, result.node.identity(inputs))
        self._record_path.parent.mkdir(exist_ok=True)
        write_json(self._record_path, known)


def scores(results: Iterable[Result]) -> Json:
    """Scores by test set and metric; empty where nothing was evaluated."""
    for result in results:
        if result.node.stage.name == "evaluate":
            found: Json = result.artifact.stats["scores"]
            return found
    return {}


def _line(result: Result) -> str:
    """`clean:europarl  built in 3.2 s  29,000 rows`."""
    how = "cached" if result.cached else f"built in {result.took_s:.1f} s"
    return f"{result.node.name:<26} {how:<18} {_summary(result.artifact.stats)}".rstrip()


def _summary(stats: Json) -> str:
    """The numbers of a stage's statistics, in a few words."""
    rejected = sum(stats.get("rejected", {}).values())
    words = [f"{stats['rows_kept']:,} of {stats['rows_in']:,} pairs kept"] if rejected else []
    for key in ("rows", "size", "steps", "dev_perplexity", "parameters"):
        if key in stats:
            value = stats[key]
            words.append(f"{value:,.2f} {key}" if isinstance(value, float) else f"{value:,} {key}")
    return ", ".join(words).replace("_", " ")
