"""What the record of a run holds, made from recipes, manifests and event files alone."""

import csv
import dataclasses
import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from flows.mlflow_store import DataSet, Point, Status
from pipeline.artifact import MANIFEST, Artifact, Json, Manifest
from pipeline.errors import TradukoError
from pipeline.events import read_events
from pipeline.inventory import files_of
from pipeline.stages import flatten

SAMPLE_ROWS = 20
WHOLE_FILES = (
    "scores.json", "by_length.json", "sets.json", "curve.json", "curve.svg", "recipe.json",
)  # fmt: skip
TABLES = {"kept": "part-*.parquet", "rejected": "rejected/part-*.parquet"}
MAX_CHARS = 1_000
"""Of one parameter or tag."""


def params(config: Json) -> dict[str, str]:
    """A recipe's fields by dotted name; of several sources each under its own name."""
    values = flatten(_by_name(config))
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
        if value is not None
    }
    return {key: masked(text)[:MAX_CHARS] for key, text in texts.items()}


def numbers(stats: Json, time_ms: int) -> list[Point]:
    """The numbers in a stage's statistics, by dotted name."""
    return [
        Point(key, float(value), time_ms, 0)
        for key, value in flatten(stats).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def curves(path: Path, *, durable: bool = False) -> list[Point]:
    """The metrics in an event file; none if there is no file.

    Args:
        path: Of the file.
        durable: Only what a checkpoint vouches for: a resumed run cuts the rest off.
    """
    events = read_events(path)
    if durable:
        vouched = [at for at, event in enumerate(events) if event["kind"] == "checkpoint"]
        events = events[: vouched[-1] + 1] if vouched else []
    return [
        Point(key, float(value), milliseconds(event["time"]), event["step"])
        for event in events
        for key, value in event["metrics"].items()
    ]


def made_from(manifest: Manifest, root: Path) -> list[DataSet]:
    """The artifacts or the files that an artifact was made from."""
    inputs = [
        DataSet(name, content[:36], str(root / name.partition(":")[0] / fingerprint[:16]))
        for name, fingerprint, content in manifest.inputs
    ]
    files = [
        DataSet(place, file["sha256"][:36], masked(file["address"]))
        for place, file in files_of(manifest.stats).items()
    ]
    return inputs + files


def write_samples(artifact: Artifact, folder: Path) -> None:
    """The manifest, small results, and the first rows of what is large."""
    manifest = json.dumps(dataclasses.asdict(artifact.manifest), indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(manifest, encoding="utf-8")
    for name in WHOLE_FILES:
        for path in artifact.paths(name):
            shutil.copyfile(path, folder / name)
    samples = folder / "samples"
    samples.mkdir()
    for name, pattern in TABLES.items():
        for path in artifact.paths(pattern)[:1]:
            _write_rows(path, samples / f"{name}.csv")
    for path in artifact.paths("hypotheses/*.txt"):
        with path.open(encoding="utf-8", newline="\n") as lines:
            text = "".join(islice(lines, SAMPLE_ROWS))
        (samples / f"hypotheses-{path.name}").write_text(text, encoding="utf-8", newline="\n")


def started_ms(manifest: Manifest) -> int:
    """When its building began."""
    return milliseconds(manifest.started_at)


def milliseconds(stamp: str) -> int:
    """Since 1970, of an ISO 8601 time with its zone."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)


def status_after(error: BaseException | None) -> Status:
    """How work ended: an interrupt or a termination signal is no failure."""
    if error is None:
        return "FINISHED"
    return "FAILED" if isinstance(error, Exception) else "KILLED"


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    text = next(iter(str(error).splitlines()), "")
    name = type(error).__name__
    said = text if isinstance(error, TradukoError) else f"{name}: {text}" if text else name
    return masked(said)[:MAX_CHARS]


def reason(error: BaseException) -> str:
    """The innermost cause that the system names; else what the error says."""
    causes = list(_causes(error))
    named = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
    if named:
        return str(named[-1])
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return "no answer in time"
    return first_line(error)[:200].rstrip(".")


def masked(text: str) -> str:
    """Without the user and password of an address, and without its query, which may be a key."""
    text = re.sub(r"://[^/@\s]*@", "://***@", text)
    return re.sub(r"(://[^\s?#]*)\?[^\s#'\"]+", r"\1?***", text)


def is_news(point: Point, known: Mapping[str, float]) -> bool:
    """Whether a number is not recorded yet, or has changed since."""
    value = known.get(point.key)
    return value is None or (value != point.value and not math.isnan(point.value))


def _by_name(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Lists of named tables as tables."""
    if isinstance(value, dict):
        return {key: _by_name(inner) for key, inner in value.items()}
    is_named = isinstance(value, list) and all(
        isinstance(inner, dict) and "name" in inner for inner in value
    )
    return {inner["name"]: _by_name(inner) for inner in value} if is_named else value


def _write_rows(table: Path, out: Path) -> None:
    from pipeline.tables import open_parquet

    with open_parquet(table) as file:
        rows = next(file.iter_batches(SAMPLE_ROWS), None)
        names = file.schema_arrow.names
    with out.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(names)
        if rows is not None:
            writer.writerows(row.values() for row in rows.to_pylist())


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__
