"""A run's page: one HTML file that shows what was built, with nothing to load.

Text of corpora and models is escaped, and characters that do not print are spelt out.
"""

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from flows import page_plots
from flows.run import Result, summary
from pipeline.artifact import Artifact, Json
from pipeline.cleaning.statistics import STATISTICS_FILE
from pipeline.errors import printable
from pipeline.events import EVENTS_FILE, read_events
from pipeline.whole_file import whole_file

NUM_SAMPLES = 10
STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: left; vertical-align: top; }
td { overflow-wrap: anywhere; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font-size: .85em; color: #555; }
svg { max-width: 100%; height: auto; }
"""

Rows = Iterable[Sequence[object]]


def write_page(recipe: str, results: Sequence[Result], path: Path) -> None:
    """Write the page, whole or not at all.

    Args:
        recipe: Its name.
        results: Of all its stages.
        path: The file.
    """
    body = "\n".join(_sections(results))
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(recipe)} — '
        f"Traduko</title><style>{STYLE}</style></head>\n<body><h1>{_text(recipe)}</h1>\n"
        f"{body}\n</body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _sections(results: Sequence[Result]) -> Iterator[str]:
    by_stage: dict[str, list[Result]] = {}
    for result in results:
        by_stage.setdefault(result.node.stage.name, []).append(result)
    yield from _evaluation(by_stage.get("evaluate", []))
    yield _stages(results)
    yield from _cleaning(by_stage.get("clean", []))
    for result in by_stage.get("dedup", []):
        yield from _dedup(result.stats)
    for result in by_stage.get("vocab", []):
        yield from _vocab(result.stats)
    for result in by_stage.get("train", []):
        yield "<h2>Training</h2>"
        for path in result.artifact.paths(EVENTS_FILE):
            yield page_plots.training(read_events(path))


def _evaluation(results: Sequence[Result]) -> Iterator[str]:
    for result in results:
        yield "<h2>Scores</h2>"
        yield _scores(result.stats["scores"])
        for path in result.artifact.paths("curve.svg"):
            yield page_plots.element(path.read_text(encoding="utf-8"))
        yield "<h2>Translations</h2>"
        yield from _translations(result.artifact)


def _scores(scores: Json) -> str:
    rows = [
        (name, score["label"], f"{score['score']:.2f}", _interval(score), score["signature"])
        for name, metrics in scores.items()
        for score in metrics.values()
        if score
    ]
    return _table(("set", "metric", "score", "95 %", "signature"), rows)


def _interval(score: Json) -> str:
    return f"{score['low']:.1f} – {score['high']:.1f}" if score.get("low") is not None else ""


def _translations(evaluated: Artifact) -> Iterator[str]:
    """The first sentences of each test set."""
    for path in evaluated.paths("hypotheses/*.txt"):
        [pairs] = evaluated.paths(f"pairs/{path.stem}.jsonl")
        with path.open(encoding="utf-8", newline="\n") as file:
            hypotheses = list(islice(file, NUM_SAMPLES))
        with pairs.open(encoding="utf-8", newline="\n") as file:
            given = [json.loads(line) for line in islice(file, NUM_SAMPLES)]
        rows = [
            (pair["src"], hypothesis, pair["ref"])
            for pair, hypothesis in zip(given, hypotheses, strict=True)
        ]
        yield f"<h3>{_text(path.stem)}</h3>" + _table(("source", "translation", "reference"), rows)


def _stages(results: Sequence[Result]) -> str:
    rows = [
        (
            result.node.name,
            "cached" if result.cached else f"built in {result.took_s:.1f} s",
            summary(result.stats),
            result.reason,
            result.artifact.folder,
        )
        for result in results
    ]
    return "<h2>Stages</h2>" + _table(("stage", "how", "what", "why", "folder"), rows)


def _cleaning(results: Sequence[Result]) -> Iterator[str]:
    stats = {_source(result): result.stats for result in results}
    rules = sorted({rule for each in stats.values() for rule in each["rejected"]})
    rows = [
        (
            name,
            each["rows_in"],
            each["rows_kept"],
            *(each["rejected"].get(rule, 0) for rule in rules),
        )
        for name, each in stats.items()
    ]
    yield "<h2>Cleaning</h2>"
    yield "<p>Rows of each source, and how many each rule rejected.</p>"
    yield _table(("source", "rows", "kept", *rules), rows)
    files = {
        _source(result): path
        for result in results
        for path in result.artifact.paths(STATISTICS_FILE)
    }
    if files:
        yield page_plots.lengths(files)


def _dedup(stats: Json) -> Iterator[str]:
    rules = sorted(stats["rejected"])
    rows = [
        (
            name,
            each["rows_in"],
            each["rows_kept"],
            each["rows_held_out"],
            *(each["rejected"].get(rule, 0) for rule in rules),
        )
        for name, each in stats["sources"].items()
    ]
    yield "<h2>Duplicates and overlap</h2>"
    yield _table(("source", "rows", "kept", "held out", *rules), rows)
    overlap = [(name, *kinds.values()) for name, kinds in stats["overlap"].items()]
    if overlap:
        kinds = next(iter(stats["overlap"].values()))
        yield "<p>Training rows dropped because a dev or test set holds a side of them.</p>"
        yield _table(("set", *kinds), overlap)


def _vocab(stats: Json) -> Iterator[str]:
    sides = {side: stats[side] for side in ("src", "tgt") if isinstance(stats.get(side), dict)}
    if not sides:
        return
    keys = [key for key, value in next(iter(sides.values())).items() if not isinstance(value, list)]
    yield "<h2>Vocabulary</h2>"
    yield _table(
        ("side", *keys), [(side, *(each[key] for key in keys)) for side, each in sides.items()]
    )


def _source(result: Result) -> str:
    return result.node.source.name if result.node.source else result.node.name


def _table(titles: Sequence[str], rows: Rows) -> str:
    head = "".join(f"<th>{_text(title.replace('_', ' '))}</th>" for title in titles)
    body = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, int | float):
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
        return f'<td class="number">{shown}</td>'
    if isinstance(value, Path):
        return f"<td><code>{_text(str(value))}</code></td>"
    return f"<td>{_text(str(value))}</td>"


def _text(text: str) -> str:
    return html.escape(printable(text.rstrip("\n")))
