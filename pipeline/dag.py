"""The recipe's graph of stages; what a run would do, and why."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pipeline.artifact import Artifact, Damaged, Identity, Json, Root
from pipeline.config import RunConfig
from pipeline.errors import CorpusError
from pipeline.fetching.address import recorded
from pipeline.fetching.lock import LOCK_FILE, Pin
from pipeline.file_digests import FileDigests
from pipeline.section import keyed
from pipeline.sources import FileSource, Source
from pipeline.stages import (
    AVERAGE,
    CLEAN,
    DEDUP,
    DOWNLOAD,
    EVALUATE,
    STAGE_NAMES,
    TOKENIZE,
    TRAIN,
    VOCAB,
    Node,
    Stage,
    flatten,
)  # fmt: skip

BUNDLE_FILES = {
    "vocab": ("tokenizer.model", "tokenizer.json"),
    "train": ("config.json", "model.safetensors"),
}
"""What a stage takes of the bundle that its `init_from` names."""

SEPARATE = {"tokenizer.model": ("tokenizer.src.model", "tokenizer.tgt.model")}
"""What a bundle has in a file's place, if its sides have a vocabulary each."""

PINNED_OTHERWISE = f"{LOCK_FILE} pins another file"
"""Why a download that is there is made again."""


def nodes(
    run: RunConfig, digests: FileDigests, pins: Mapping[str, Pin] | None = None
) -> list[Node]:
    """The recipe's graph, downloads first, and all inputs before what is made from them.

    Args:
        run: The recipe.
        digests: Tells what local files hold.
        pins: What `traduko.lock` says of addresses.

    Raises:
        CorpusError: If a local file is missing or is no file.
    """
    train, dev, test = run.download.train, run.download.dev, run.download.test
    downloads = [_download_node(source, digests, pins or {}) for source in (*train, *dev, *test)]
    names = {node.source.name: node.name for node in downloads if node.source}
    cleans = [_clean_node(run, source, names[source.name]) for source in train]
    held_out = tuple(names[source.name] for source in (*dev, *test))
    graph = [
        *downloads,
        *cleans,
        _node(DEDUP, run, ("dedup",), (*(node.name for node in cleans), *held_out)),
        _from_bundle(_node(VOCAB, run, ("vocab", "clean.normalise"), ("dedup",)), digests),
        _node(
            TOKENIZE,
            run,
            ("tokenize",),
            ("dedup", "vocab", *(names[source.name] for source in dev)),
        ),
        _from_bundle(_node(TRAIN, run, ("seed", "model", "train"), ("tokenize",)), digests),
        _node(AVERAGE, run, ("src", "tgt", "model", "average"), ("train", "vocab")),
    ]
    held_out_test = ("dedup",) if run.dedup.holdout.test else ()
    if test or held_out_test:
        checkpoints = ("train",) if run.evaluate.every_checkpoint else ()
        inputs = ("average", *checkpoints, *held_out_test, *(names[source.name] for source in test))
        graph.append(_node(EVALUATE, run, ("evaluate",), inputs))
    return graph


def _node(stage: Stage, run: RunConfig, fields: Iterable[str], inputs: tuple[str, ...]) -> Node:
    fields = tuple(fields)
    return Node(
        stage,
        config=_pick(keyed(run, defaults=True), fields),
        short_config=_pick(keyed(run), fields),
        inputs=inputs,
    )


def _from_bundle(node: Node, digests: FileDigests) -> Node:
    """A node whose section names a bundle to begin from: it enters by the content of its files."""
    section = node.stage.name
    folder = node.config[section]["init_from"]
    if folder is None:
        return node
    content = {
        name: digests.of(Path(folder) / name)
        for usual in BUNDLE_FILES[section]
        for name in _names_in(Path(folder), usual)
    }
    config, short = (
        {**values, section: {**values[section], "init_from": content}}
        for values in (node.config, node.short_config)
    )
    return replace(node, config=config, short_config=short)


def _names_in(bundle: Path, usual: str) -> tuple[str, ...]:
    separate = SEPARATE.get(usual, ())
    return separate if separate and (bundle / separate[0]).exists() else (usual,)


def _clean_node(run: RunConfig, source: Source, download: str) -> Node:
    name = {"source": source.name}
    node = _node(CLEAN, run, ("src", "tgt", "clean"), (download,))
    return Node(CLEAN, {**node.config, **name}, {**node.short_config, **name}, (download,), source)


def _download_node(source: Source, digests: FileDigests, pins: Mapping[str, Pin]) -> Node:
    """A local file enters by its content, an address by its sha256 where the recipe gives one."""
    if source.builtin:
        from pipeline.builtin.quickstart import VERSION

        config = {**source.builtin.model_dump(), "builtin_version": VERSION}
        return Node(DOWNLOAD, config, config, source=source)
    config = {place: _file_config(file, digests) for place, file in source.files.items()}
    names = {place: file["url"] for place, file in config.items() if "url" in file}
    pinned = {place: pins[name].sha256 for place, name in names.items() if name in pins}
    if source.src and source.tgt and _place(source.src) == _place(source.tgt):
        raise CorpusError(
            f"Source `{source.name}` gives {source.src.address} for both sides; `src` and `tgt` "
            "must be two files."
        )
    short = {"layout": keyed(source.layout)} if source.layout else {}
    full = {"layout": keyed(source.layout, defaults=True)} if source.layout else {}
    return Node(DOWNLOAD, config | full, config | short, source=source, pins=pinned)


def _file_config(file: FileSource, digests: FileDigests) -> Json:
    member = {"member": file.member} if file.member else {}
    if file.path:
        return {"sha256": digests.of(Path(file.path)), **member}
    whole = {"sha256": file.sha256} if file.sha256 else {"url": recorded(file.address)}
    return whole | member


def _place(file: FileSource) -> tuple[str, str | None]:
    return file.address, file.member


def _pick(config: Json, fields: Iterable[str]) -> Json:
    """The named sections and fields, as nested tables."""
    picked: Json = {}
    for name in fields:
        section, _, inner = name.partition(".")
        if not inner and section in config:
            picked[section] = config[section]
        elif inner and inner in config.get(section, {}):
            picked[section] = {inner: config[section][inner]}
    return picked


Status = Literal["cached", "run", "depends", "damaged"]


@dataclass(frozen=True)
class Planned:
    """What a run would do with one node, and why."""

    node: Node
    status: Status
    reason: str
    fingerprint: str | None
    """None where it depends on what an earlier stage gives."""
    artifact: Artifact | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Selection:
    """Which stages a run may build."""

    stages: frozenset[str] = frozenset(STAGE_NAMES)
    force: bool = False

    @classmethod
    def of(cls, only: str | None, start: str | None, *, force: bool) -> "Selection":
        """Just `only`, or `start` and all after it, or everything."""
        if only:
            return cls(frozenset({only}), force)
        first = STAGE_NAMES.index(start) if start else 0
        return cls(frozenset(STAGE_NAMES[first:]), force)

    def of_graph(self, graph: Sequence[Node]) -> list[Node]:
        """The selected nodes and all that they are made from, in order."""
        needed: set[str] = set()
        for node in reversed(graph):
            if node.stage.name in self.stages or node.name in needed:
                needed.update((node.name, *node.inputs))
        return [node for node in graph if node.name in needed]


def plan(graph: Iterable[Node], root: Root, selection: Selection, last: Json) -> list[Planned]:
    """What a run would do, against what the recipe's last run recorded."""
    planned: list[Planned] = []
    ready: dict[str, Artifact] = {}
    for node in graph:
        step = plan_node(node, root, ready, selection, last)
        if step.artifact:
            ready[node.name] = step.artifact
        planned.append(step)
    return planned


def plan_node(
    node: Node, root: Root, ready: Mapping[str, Artifact], selection: Selection, last: Json
) -> Planned:
    """What a run would do with one node, given the artifacts that are ready."""
    unknown = [name for name in node.inputs if name not in ready]
    if unknown:
        return Planned(node, "depends", f"depends on what {unknown[0]} gives", None)
    identity = node.identity(ready)
    fingerprint = identity.fingerprint
    chosen = node.stage.name in selection.stages
    if chosen and selection.force:
        return Planned(node, "run", "forced", fingerprint)
    try:
        artifact = root.find(identity)
    except Damaged as damage:
        return Planned(node, "damaged", str(damage), fingerprint)
    if artifact and node.is_pinned_otherwise(artifact):
        return Planned(node, "run", PINNED_OTHERWISE, fingerprint)
    if artifact:
        return Planned(node, "cached", "", fingerprint, artifact)
    return Planned(node, "run", _why(node, identity, last.get(node.name)), fingerprint)


def record(node: Node, identity: Identity) -> Json:
    """What a later plan compares with."""
    return {
        "version": identity.version,
        "config": node.config,
        "inputs": {entry.name: entry.content for entry in identity.inputs},
        "tools": dict(identity.tools),
        "fingerprint": identity.fingerprint,
    }


def _why(node: Node, identity: Identity, last: Json | None) -> str:
    """The first difference from the last run."""
    if last is None:
        return "never built"
    return next(_differences(last, record(node, identity)), "never built")


def _differences(last: Json, now: Json) -> Iterator[str]:
    if last["version"] != now["version"]:
        yield f"version {last['version']} → {now['version']}"
    for key, old, new in _changed(flatten(last["config"]), flatten(now["config"])):
        yield f"config `{key}` {_show(old)} → {_show(new)}"
    for name, old, new in _changed(last["inputs"], now["inputs"]):
        how = "is new" if old is None else "was taken away" if new is None else "changed"
        yield f"input `{name}` {how}"
    for tool, old, new in _changed(last["tools"], now["tools"]):
        yield f"{tool} {old} → {new}"


def _changed(before: Json, after: Json) -> Iterator[tuple[str, object, object]]:
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            yield key, before.get(key), after.get(key)


def _show(value: object) -> str:
    text = str(value)
    return text if len(text) <= 16 else text[:12] + "…"


def read_record(path: Path) -> Json:
    """What the recipe's last run recorded, by node; empty if there was none."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
