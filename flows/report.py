"""What a person reads about a finished run."""

from collections.abc import Sequence

from flows.run import Result, summary
from pipeline.artifact import Json


def markdown(found: Json, results: Sequence[Result]) -> str:
    """A run as a page: its stages, why each was built, and the scores with their signatures."""
    stages = [
        f"| {result.node.name} | {'cached' if result.cached else 'built'} | {result.reason} "
        f"| {result.took_s:.1f} | {summary(result.stats)} | `{result.artifact.folder}` |"
        for result in results
    ]
    return "\n".join(
        [
            f"# {found['recipe']}",
            "",
            "| stage | how | why | seconds | what | folder |",
            "|---|---|---|---:|---|---|",
            *stages,
            *_scores(found["scores"]),
        ]
    )


def _scores(scores: Json) -> list[str]:
    if not scores:
        return []
    rows = [
        f"| {name} | {score['label']} | {score['score']:.2f} | {score['low']:.1f} – {score['high']:.1f} "
        f"| `{_in_table(score['signature'])}` |"
        for name, metrics in scores.items()
        for score in metrics.values()
        if score
    ]
    return ["", "| set | metric | score | 95 % | signature |", "|---|---|---:|---|---|", *rows]


def _in_table(text: str) -> str:
    """A bar would end the cell, even in code."""
    return text.replace("|", r"\|")
