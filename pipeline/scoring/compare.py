"""Systems compared on the same test sets: what differs, how surely, and in which sentences."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.artifact import MANIFEST, Json, Manifest
from pipeline.errors import CorpusError, InputError
from pipeline.scoring.metrics import Kind, Measure, entry, measures
from pipeline.scoring.significance import (
    BOOTSTRAP_SAMPLES,
    SEED,
    TRIALS,
    Counts,
    approximate_randomisation,
    paired_bootstrap,
)

METRICS = ("bleu", "chrf2", "ter")


class Rows(NamedTuple):
    """One system's translations of a test set."""

    sources: Sequence[str] | None
    references: Sequence[str]
    hypotheses: Sequence[str]


@dataclass(frozen=True)
class System:
    """What is compared."""

    name: str
    tokenizer: str
    """SacreBLEU's, for BLEU."""
    tgt: str
    sets: dict[str, Rows]


def read_evaluated(name: str, folder: Path) -> System:
    """What `evaluate` has left in a folder, or in the attempt that the folder's manifest names.

    Raises:
        InputError: If that is no result of `evaluate`, or one from before it kept its references.
    """
    if (folder / MANIFEST).is_file():
        folder /= Manifest.read(folder / MANIFEST).attempt
    try:
        described = json.loads((folder / "sets.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder} must be a folder that `evaluate` made, but holds no sets.json."
        ) from None
    sets = {each: _read_set(folder, each) for each in described["sets"]}
    return System(name, described["tokenizer"], described["tgt"], sets)


def read_files(
    hypotheses: Path, references: Path, sources: Path | None, kind: Kind, test: str
) -> System:
    """Translations in a file of lines, of one test set.

    Raises:
        CorpusError: If a file is missing or not UTF-8, or the numbers of lines differ.
    """
    lines = {path: read_lines(path) for path in (hypotheses, references, sources) if path}
    for path, others in lines.items():
        if len(others) != len(lines[references]):
            raise CorpusError(
                f"{path} must have a line for each of {references}, but has {len(others):,} where "
                f"that has {len(lines[references]):,}."
            )
    rows = Rows(lines[sources] if sources else None, lines[references], lines[hypotheses])
    return System(str(hypotheses), kind.tokenizer, kind.tgt, {test: rows})


def read_lines(path: Path) -> list[str]:
    """A file's lines, cut at line feeds alone."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path} must be UTF-8, but is not at byte {error.start}.") from None
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}.") from None
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def compare(systems: Sequence[System], num_sentences: int) -> Json:
    """Each metric of each set, with the p-values of every system against the first.

    Args:
        systems: At least two, the baseline first.
        num_sentences: How many of the sentences that differ most are shown for each system.

    Raises:
        InputError: If they are not of the same test sets; the message names the difference.
    """
    for first, second in pairwise(systems):
        _require_same(first, second)
    return {
        "systems": [system.name for system in systems],
        "seed": SEED,
        "bootstrap_samples": BOOTSTRAP_SAMPLES,
        "randomisation_trials": TRIALS,
        "sets": {test: _of_set(systems, test, num_sentences) for test in systems[0].sets},
    }


def _of_set(systems: Sequence[System], test: str, num_sentences: int) -> Json:
    rows = [system.sets[test] for system in systems]
    chosen = [
        measure
        for measure in measures(Kind(systems[0].tgt, systems[0].tokenizer))
        if measure.name in METRICS
    ]
    counts = {
        measure.name: [measure.counts_of(each.hypotheses, each.references) for each in rows]
        for measure in chosen
    }
    names = [system.name for system in systems]
    chrf = next(measure for measure in chosen if measure.name == "chrf2")
    return {
        "sentences": len(rows[0].references),
        "metrics": {
            measure.name: _of_metric(measure, names, counts[measure.name]) for measure in chosen
        },
        "differ_most": [
            found
            for at in range(1, len(systems))
            for found in _differ_most(chrf, names, rows, counts["chrf2"], at, num_sentences)
        ],
    }


def _of_metric(measure: Measure, names: Sequence[str], counts: Sequence[Counts]) -> Json:
    baseline, *others = counts
    entries = [entry(measure, each) for each in counts]
    found: list[Json] = [{"system": names[0], **_numbers(entries[0])}]
    for name, scored, each in zip(names[1:], entries[1:], others, strict=True):
        difference = measure.score_of(each.sum(0).tolist()) - measure.score_of(
            baseline.sum(0).tolist()
        )
        found.append(
            {
                "system": name,
                **_numbers(scored),
                "difference": round(difference, 2),
                "p_bootstrap": paired_bootstrap(baseline, each, measure.score_of),
                "p_randomisation": approximate_randomisation(baseline, each, measure.score_of),
            }
        )
    return {"label": measure.label, "signature": measure.signature, "systems": found}


def _numbers(scored: Json) -> Json:
    return {key: scored[key] for key in ("score", "low", "high")}


def _differ_most(
    chrf: Measure,
    names: Sequence[str],
    rows: Sequence[Rows],
    counts: Sequence[Counts],
    at: int,
    most: int,
) -> Iterator[Json]:
    """The sentences of one system whose chrF2 is furthest from the baseline's, furthest first."""
    first, second = (
        np.array([chrf.score_of(row.tolist()) for row in each]) for each in (counts[0], counts[at])
    )
    apart = np.abs(second - first)
    for row in np.argsort(-apart, kind="stable")[:most].tolist():
        if not apart[row]:
            return
        sources = rows[0].sources or rows[at].sources
        yield {
            "system": names[at],
            "line": row + 1,
            "src": sources[row] if sources else None,
            "ref": rows[0].references[row],
            "baseline": {
                "hypothesis": rows[0].hypotheses[row],
                "chrf2": round(float(first[row]), 1),
            },
            "other": {
                "hypothesis": rows[at].hypotheses[row],
                "chrf2": round(float(second[row]), 1),
            },
        }


def _require_same(first: System, second: System) -> None:
    """Refuse what cannot be compared."""
    both = f"{first.name} and {second.name}"
    if first.sets.keys() != second.sets.keys():
        raise InputError(
            f"{both} must be of the same test sets, but one has {', '.join(first.sets)} and the "
            f"other {', '.join(second.sets)}. Name one that both have with --test."
        )
    if first.tokenizer != second.tokenizer:
        raise InputError(
            f"{both} must be scored with one tokenizer, but one has {first.tokenizer} and the other "
            f"{second.tokenizer}."
        )
    for test, rows in first.sets.items():
        other = second.sets[test]
        _require_equal(both, test, "references", (rows.references, other.references))
        if rows.sources and other.sources:
            _require_equal(both, test, "sources", (rows.sources, other.sources))


def _require_equal(
    both: str, test: str, what: str, texts: tuple[Sequence[str], Sequence[str]]
) -> None:
    first, second = texts
    if len(first) != len(second):
        raise InputError(
            f"{both} must have the same {what} of `{test}`, but one has {len(first):,} and the "
            f"other {len(second):,}."
        )
    for line, (left, right) in enumerate(zip(first, second, strict=True), 1):
        if left != right:
            raise InputError(
                f"{both} must have the same {what} of `{test}`, but line {line} is “{left[:80]}” in "
                f"one and “{right[:80]}” in the other."
            )


def _read_set(folder: Path, test: str) -> Rows:
    pairs = [json.loads(line) for line in read_lines(folder / "pairs" / f"{test}.jsonl")]
    hypotheses = read_lines(folder / "hypotheses" / f"{test}.txt")
    if len(pairs) != len(hypotheses):
        raise InputError(f"{folder} is damaged: {test} has {len(hypotheses)} of {len(pairs)} lines")
    return Rows([row["src"] for row in pairs], [row["ref"] for row in pairs], hypotheses)
