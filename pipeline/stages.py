"""The eight stages: what each runs on, and what it is known by.

Their modules are imported only to run them, so that planning loads none of their libraries.
"""

import importlib.metadata
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pipeline.artifact import Artifact, Identity, Input, Json, digest_json
from pipeline.config import RunConfig
from pipeline.job import Job
from pipeline.sources import Source

Inputs = Mapping[str, Artifact]
"""Finished artifacts by the name of their node."""


@dataclass(frozen=True)
class Stage:
    """One of the eight."""

    name: str
    version: int
    """Raised when the same config and inputs give other rows than before."""
    run: Callable[["Node", RunConfig, Inputs, Job], Json]
    aside: tuple[str, ...] = ()
    """Files kept for people, read by no later stage."""
    tools: Callable[[], dict[str, str]] = dict
    """Versions of what shapes the rows."""
    resume_without: tuple[str, ...] = ()
    """Fields that resumable state does not depend on; none = the state is cleared on commit."""
    checks_inputs: bool = False
    """Whether its inputs are hashed before it begins, being too costly to run on damaged ones."""
    check: Callable[[RunConfig], None] | None = None
    """Raises what can be known to fail before the first stage begins."""


@dataclass(frozen=True)
class Node:
    """A stage with its place in one recipe's graph."""

    stage: Stage
    config: Json
    """Every field that determines the result, by section."""
    short_config: Json
    """The same without those at their default: what the fingerprint covers."""
    inputs: tuple[str, ...] = ()
    source: Source | None = None
    """For download and clean, which make one artifact per source."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """For download: by place of a file, the sha256 that `traduko.lock` pins for its address."""

    @property
    def name(self) -> str:
        """`clean:europarl`, or the stage's name alone."""
        return f"{self.stage.name}:{self.source.name}" if self.source else self.stage.name

    def identity(self, inputs: Inputs) -> Identity:
        """What determines this node's artifact, once its inputs are there."""
        manifests = [(name, inputs[name].manifest) for name in self.inputs]
        return Identity(
            stage=self.stage.name,
            version=self.stage.version,
            config=self.short_config,
            inputs=tuple(Input(name, made.fingerprint, made.content) for name, made in manifests),
            tools=self.stage.tools(),
            aside=self.stage.aside,
        )

    def is_pinned_otherwise(self, artifact: Artifact) -> bool:
        """Whether an artifact of this node was made of other files than those that are pinned."""
        return any(artifact.stats[place]["sha256"] != sha256 for place, sha256 in self.pins.items())

    def work_key(self, inputs: Inputs) -> str | None:
        """Names resumable state that outlives the artifact."""
        if not self.stage.resume_without:
            return None
        config = flatten(self.short_config)
        kept = {key: config[key] for key in config if key not in self.stage.resume_without}
        contents = [inputs[name].manifest.content for name in self.inputs]
        return digest_json([self.stage.version, kept, contents])[:16]


def _download(node: Node, _run: RunConfig, _inputs: Inputs, job: Job) -> Json:
    from pipeline.download import download

    assert node.source
    return download(node.source, job)


def _clean(node: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.clean import clean

    assert node.source
    languages = (run.src, run.tgt)
    return clean(run.clean, languages, node.source.name, inputs[node.inputs[0]], job)


def _dedup(node: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.dedup import dedup

    cleaned = [inputs[name] for name in node.inputs if name.startswith("clean:")]
    return dedup(run.dedup, cleaned, _sets(node, inputs), job)


def _vocab(_: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.vocab import vocab

    return vocab(run.vocab, run.clean.normalise, inputs["dedup"], job)


def _tokenize(node: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.tokenize import tokenize

    sets = _sets(node, inputs) | _held_out(run, "dev", inputs)
    return tokenize(run.tokenize, inputs["dedup"], inputs["vocab"], sets, job)


def _train(_: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.train import train

    return train(run.seed, run.model, run.train, inputs["tokenize"], job)


def _average(_: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.average import average

    return average(run, inputs["train"], inputs["vocab"], job)


def _evaluate(node: Node, run: RunConfig, inputs: Inputs, job: Job) -> Json:
    from pipeline.evaluate import evaluate

    sets = _sets(node, inputs) | _held_out(run, "test", inputs)
    return evaluate(run.evaluate, inputs["average"], sets, job, inputs.get("train"))


def _check_evaluate(run: RunConfig) -> None:
    from pipeline.scoring.comet import check_comet
    from pipeline.scoring.metrics import check_tokenizer, tokenizer_for

    check_tokenizer(tokenizer_for(run.tgt, run.evaluate.bleu_tokenizer))
    if run.evaluate.comet:
        check_comet()


def _sets(node: Node, inputs: Inputs) -> dict[str, Artifact]:
    """The downloaded dev and test sets among a node's inputs, by source name."""
    names = [name for name in node.inputs if name.startswith("download:")]
    return {name.partition(":")[2]: inputs[name] for name in names}


def _held_out(run: RunConfig, kind: Literal["dev", "test"], inputs: Inputs) -> dict[str, Artifact]:
    """The set that `dedup` took out of the training text, as if it had been downloaded."""
    if not getattr(run.dedup.holdout, kind):
        return {}
    whole, prefix = inputs["dedup"], f"holdout/{kind}/"
    files = tuple(
        replace(file, path=file.path.removeprefix(prefix))
        for file in whole.manifest.files
        if file.path.startswith(prefix)
    )
    return {kind: Artifact(whole.folder / prefix, replace(whole.manifest, files=files))}


def _unicode() -> dict[str, str]:
    return {"unicodedata": unicodedata.unidata_version}


def _clean_tools() -> dict[str, str]:
    from pipeline.cleaning.language_id import model_version

    return {**_unicode(), "model of languages": model_version()}


DOWNLOAD = Stage("download", 1, _download, aside=("rejected.jsonl",))
CLEAN = Stage("clean", 2, _clean, aside=("rejected/*", "statistics.csv"), tools=_clean_tools)
DEDUP = Stage("dedup", 2, _dedup, aside=("rejected/*",), tools=_unicode)
VOCAB = Stage(
    "vocab",
    2,
    _vocab,
    tools=lambda: {"sentencepiece": importlib.metadata.version("sentencepiece")},
)
TOKENIZE = Stage("tokenize", 2, _tokenize)
TRAIN = Stage(
    "train",
    2,
    _train,
    aside=("events.jsonl",),
    resume_without=("train.max_steps",),
    checks_inputs=True,
)
AVERAGE = Stage("average", 1, _average, aside=("recipe.json",))
EVALUATE = Stage("evaluate", 2, _evaluate, aside=("curve.svg",), check=_check_evaluate)
STAGES = (DOWNLOAD, CLEAN, DEDUP, VOCAB, TOKENIZE, TRAIN, AVERAGE, EVALUATE)
STAGE_NAMES = tuple(stage.name for stage in STAGES)


def flatten(config: Json, prefix: str = "") -> dict[str, object]:
    """Nested tables as dotted names."""
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
