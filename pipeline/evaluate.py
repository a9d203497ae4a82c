"""Stage 8: test sets translated and scored.

Out:
    hypotheses/SET.txt    one line for each source line
    pairs/SET.jsonl       what they were made from and held against: `src`, `ref`
    scores.json           by set and metric: score, interval, label, signature
    by_length.json        BLEU by the source's length
    sets.json             what `traduko compare` must know: languages, tokenizer, sizes, digests
    curve.json, .svg      with `every_checkpoint`: scores over training steps
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from model.config import SearchConfig
from pipeline.artifact import Artifact, Json, digest_json, write_json
from pipeline.capacity import num_gpus, num_places
from pipeline.cleaning.characters import count_kinds
from pipeline.config import EvaluateConfig
from pipeline.job import Job
from pipeline.reading.formats import read_corpus
from pipeline.scoring.comet import comet
from pipeline.scoring.metrics import (
    Kind,
    entry,
    measures,
    newstest2014_remark,
    scores,
    tokenizer_for,
)
from pipeline.scoring.plots import plot_curve
from pipeline.translating.bundle import read_bundle_config
from pipeline.translating.portions import ScoredSet, Translated, Translation, translate_sets

LENGTHS = (10, 20, 30, 40, 60)
"""The most words of a source in each bucket but the last."""


def evaluate(
    config: EvaluateConfig,
    average: Artifact,
    tests: Mapping[str, Artifact],
    job: Job,
    train: Artifact | None = None,
) -> Json:
    """Translate the source side of each test set and score it against the target side.

    References are read as they are: neither cleaned nor normalised.

    Args:
        config: How to search, and what to measure.
        average: The model.
        tests: The sets, by name.
        job: The stage's workplace.
        train: Where the checkpoints are, with `every_checkpoint`.
    """
    languages = read_bundle_config(average.folder)
    tokenizer = tokenizer_for(languages["tgt"], config.bleu_tokenizer)
    sets = [
        _read(name, test, Kind(languages["tgt"], tokenizer, name in config.paper_scores))
        for name, test in tests.items()
    ]
    translation = _translation(config, average, job)
    for folder in ("hypotheses", "pairs"):
        (job.out / folder).mkdir()
    found: Json = {"scores": {}, "bleu_by_length": {}}
    for each, translated in translate_sets(translation, sets, job):
        _write_texts(job.out, each, translated)
        found["scores"][each.name] = _scores(config, each, translated, job)
        found["bleu_by_length"][each.name] = by_length(each, translated)
    write_json(job.out / "scores.json", found["scores"])
    write_json(job.out / "by_length.json", found["bleu_by_length"])
    write_json(job.out / "sets.json", _described(languages, tokenizer, sets))
    if train:
        _score_checkpoints(translation, sets, train, job)
    return found


def by_length(each: ScoredSet, translated: Translated) -> Json:
    """BLEU of the sentences of each length, and how many there are. Characters of scripts without
    spaces count as words."""  # noqa: D205, D209
    bleu, counts = measures(each.kind)[0], translated.counts["bleu"]
    words = count_kinds(pa.array(each.sources, pa.string())).words
    bucket_of = np.searchsorted(LENGTHS, words)
    names = _bucket_names()
    return {
        names[bucket]: {
            "sentences": int(np.count_nonzero(bucket_of == bucket)),
            "bleu": entry(bleu, counts[bucket_of == bucket]),
        }
        for bucket in np.unique(bucket_of).tolist()
    }


def _bucket_names() -> list[str]:
    """`1-10`, …, `61-`: in words."""
    first = [0, *(most + 1 for most in LENGTHS)]
    return [f"{low}-{high}" for low, high in zip(first, (*LENGTHS, ""), strict=True)]


def _translation(config: EvaluateConfig, average: Artifact, job: Job) -> Translation:
    room = num_places(job.compute.machines(), replace(job.need, num_gpus=1))
    use_gpu = job.settings.accelerator != "cpu" and room > 0
    return Translation(
        bundle=average.folder,
        weights=None,
        search=SearchConfig(config.beam_size, config.length_penalty, config.max_extra_tokens),
        tokens_per_batch=config.tokens_per_batch,
        device="cuda" if use_gpu else "cpu",
    )


def _scores(config: EvaluateConfig, each: ScoredSet, translated: Translated, job: Job) -> Json:
    found: Json = scores(each.kind, translated.counts)
    if config.comet:
        measure = comet(config.comet, each.sources, min(1, num_gpus(job.compute)))
        found["comet"] = entry(measure, measure.counts_of(translated.hypotheses, each.references))
    remark = newstest2014_remark(len(each.sources)) if each.kind.paper else None
    if remark:
        job.say(f"evaluate: {each.name} has {remark}")
        for score in found.values():
            score["label"] += f" on {remark}"
    return found


def _write_texts(out: Path, each: ScoredSet, translated: Translated) -> None:
    """Rows of pairs are JSON, for a text may hold what ends a line to others."""
    lines = {
        "hypotheses": ("txt", translated.hypotheses),
        "pairs": (
            "jsonl",
            [
                json.dumps({"src": src, "ref": ref}, ensure_ascii=False)
                for src, ref in zip(each.sources, each.references, strict=True)
            ],
        ),
    }
    for folder, (ending, texts) in lines.items():
        text = "".join(f"{line}\n" for line in texts)
        path = out / folder / f"{each.name}.{ending}"
        path.write_text(text, encoding="utf-8", newline="\n")


def _described(languages: Json, tokenizer: str, sets: Sequence[ScoredSet]) -> Json:
    return {
        "src": languages["src"],
        "tgt": languages["tgt"],
        "tokenizer": tokenizer,
        "sets": {
            each.name: {
                "sentences": len(each.sources),
                "sources": digest_json(each.sources),
                "references": digest_json(each.references),
            }
            for each in sets
        },
    }


def _score_checkpoints(
    translation: Translation, sets: Sequence[ScoredSet], train: Artifact, job: Job
) -> None:
    """Write the curve: each checkpoint's BLEU and chrF2 on each set."""
    quick = [each._replace(kind=each.kind._replace(quick=True)) for each in sets]
    curve: Json = {each.name: [] for each in sets}
    for step, weights in _checkpoints(train):
        of_step = replace(translation, weights=weights)
        for each, translated in translate_sets(of_step, quick, job, f"of step {step:,}"):
            curve[each.name].append({"step": step, **scores(each.kind, translated.counts)})
    write_json(job.out / "curve.json", curve)
    plot_curve(curve, job.out / "curve.svg")


def _checkpoints(train: Artifact) -> Iterator[tuple[int, Path]]:
    for path in train.paths("step-*/weights.safetensors"):
        yield int(path.parent.name.removeprefix("step-")), path.parent


def _read(name: str, test: Artifact, kind: Kind) -> ScoredSet:
    batches = list(read_corpus(test.folder))
    src, tgt = (
        [text for batch in batches for text in batch[side].to_pylist()] for side in ("src", "tgt")
    )
    return ScoredSet(name, src, tgt, kind)
