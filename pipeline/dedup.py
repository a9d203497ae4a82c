"""Stage 3: pairs that are there already, and pairs that dev or test sets hold.

Out: `part-*.parquet` of kept rows, `rejected/part-*.parquet` with the rule: `duplicate` (an earlier
row has both sides), `near_duplicate` (an earlier row has the same letters and digits on both sides,
case aside) or `overlap` (a dev or test set has one of the sides, case and punctuation aside). And
for recipes without dev or test sets those that the holdout makes, as `download` would store them:
`holdout/dev/src`, `holdout/dev/tgt`, `holdout/test/…`.

Rows are numbered in the recipe's order of sources, and cut by number into spans. Keys of 128 bits
are made span by span, compared range by range, and the rows filtered span by span, each of them a
task: so memory is bounded by the size of a task, and the result depends on the rows alone.
"""

import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from pipeline.artifact import Artifact, Json
from pipeline.compute import OnDone
from pipeline.config import DedupConfig, HoldoutConfig
from pipeline.deduping.dedup_filter import (
    HELD_OUT,
    KEPT,
    Counted,
    Filtering,
    FilterTask,
    filter_span,
)
from pipeline.deduping.dedup_keys import EXACT, NEAR, SRC, Scratch, Wanted, write_span_keys
from pipeline.deduping.firsts import PARTITION_ROWS, Partition, find_firsts, find_later, key_ranges
from pipeline.deduping.holdout import TakenFrom, choose, read_taken, write_set
from pipeline.deduping.overlap import KINDS, Overlap, overlap_of
from pipeline.deduping.spans import SPAN_ROWS, Span, spans_of
from pipeline.errors import CorpusError
from pipeline.job import Job

FindRows = Callable[..., int]
"""`find_later` or `find_firsts`."""


def dedup(
    config: DedupConfig,
    cleaned: Sequence[Artifact],
    held_out: Mapping[str, Artifact],
    job: Job,
) -> Json:
    """Keep the first of equal pairs, and nothing that a dev or test set holds.

    The first is the one that comes first in the recipe's sources, then in its file.

    Args:
        config: The recipe's section.
        cleaned: Artifacts of `clean`, in the recipe's order.
        held_out: Downloaded dev and test sets, by name.
        job: The workplace.

    Raises:
        CorpusError: If nothing is left, or there are too few pairs for the holdout.
    """
    scratch = Scratch(job.out / "scratch")
    scratch.folder.mkdir()
    paths = [path for artifact in cleaned for path in artifact.paths("part-*.parquet")]
    spans = spans_of(paths, SPAN_ROWS)
    overlap = overlap_of(held_out if config.decontaminate else {}, config.min_overlap_chars)
    later = _compare(config, spans, bool(overlap.names), scratch, job)
    taken = _hold_out(config.holdout, spans, scratch, overlap, job)
    counted = _filter(spans, Filtering(job.out, scratch, later, overlap), taken, job)
    shutil.rmtree(scratch.folder)
    stats = _statistics(counted, overlap, Counter(taken.values()))
    rows_in = sum(artifact.stats["rows_kept"] for artifact in cleaned)
    assert stats["rows_in"] == rows_in, "rows are lost"
    if not stats["rows_kept"]:
        raise CorpusError(_nothing_left(cleaned, rows_in, len(taken)))
    return stats


def _compare(
    config: DedupConfig, spans: Sequence[Span], has_sets: bool, scratch: Scratch, job: Job
) -> dict[str, list[str]]:
    """Make the keys of all rows; by rule the files of rows that are there already."""
    holds_out = _holds_out(config.holdout)
    rules = [rule for rule, is_on in ((NEAR, config.near), (EXACT, config.exact)) if is_on]
    wanted = Wanted(
        kinds=(*rules, *([SRC] if holds_out else [])),
        sides=config.near or has_sets or holds_out,
        unescaped=holds_out,
    )
    if wanted.kinds or wanted.sides:
        make = partial(write_span_keys, wanted=wanted, scratch=scratch)
        job.map(make, spans, _shown(job, spans, "keys"))
    return {rule: _by_range(find_later, rule, spans, scratch, job) for rule in rules}


def _by_range(
    find: FindRows, kind: str, spans: Sequence[Span], scratch: Scratch, job: Job
) -> list[str]:
    """Compare the keys of a kind, range by range; the files of the rows found."""
    num_rows = spans[-1].end if spans else 0
    keys = [str(scratch.path(kind, "keys", span.number)) for span in spans]
    parts = [
        Partition(low, high, str(scratch.path(kind, "found", index)))
        for index, (low, high) in enumerate(key_ranges(num_rows, PARTITION_ROWS))
    ]
    if spans:
        job.map(
            partial(find, spans=keys),
            parts,
            lambda done: job.progress(done, len(parts), "ranges", "comparing"),
        )
    return [part.out for part in parts] if spans else []


def _hold_out(
    config: HoldoutConfig, spans: Sequence[Span], scratch: Scratch, overlap: Overlap, job: Job
) -> dict[int, str]:
    """Take the sets of the holdout, write them, and add them to what must not overlap."""
    if not _holds_out(config):
        return {}
    ordered = _by_range(find_firsts, SRC, spans, scratch, job)
    taken = choose(config, ordered, spans, scratch, overlap)
    tasks = [TakenFrom(span, rows) for span, rows in _by_span(taken, spans) if rows]
    found = job.map(read_taken, tasks)
    rows = [row for task in tasks for row in task.rows]
    texts = dict(zip(rows, [pair for pairs in found for pair in pairs], strict=True))
    for name in set(taken.values()):
        write_set(job.out / "holdout" / name, [texts[row] for row in rows if taken[row] == name])
    return taken


def _holds_out(config: HoldoutConfig) -> bool:
    return config.dev + config.test > 0


def _by_span(rows: Iterable[int], spans: Sequence[Span]) -> Iterator[tuple[Span, tuple[int, ...]]]:
    """Each span with those of the rows that are in it, ascending."""
    ascending = sorted(rows)
    for span in spans:
        first, last = (bisect_left(ascending, edge) for edge in (span.start, span.end))
        yield span, tuple(ascending[first:last])


def _filter(
    spans: Sequence[Span], filtering: Filtering, taken: Mapping[int, str], job: Job
) -> Counted:
    tasks = [FilterTask(span, rows) for span, rows in _by_span(taken, spans)]
    for folder in (filtering.out, filtering.out / "rejected"):
        folder.mkdir(exist_ok=True)
    filter_one = partial(filter_span, filtering=filtering)
    counted = job.map(filter_one, tasks, _shown(job, spans, "filtering"))
    return Counted.sum(counted)


def _shown(job: Job, spans: Sequence[Span], note: str) -> OnDone:
    """Progress in rows, which tasks finish span by span."""
    total = spans[-1].end if spans else 0
    return lambda done: job.progress(spans[done - 1].end, total, "rows", note)


def _statistics(counted: Counted, overlap: Overlap, held_out: Counter[str]) -> Json:
    """What became of the rows: in all, by source, and by dev or test set."""
    total = _outcomes(counted.rows)
    names = list(dict.fromkeys(source for source, _ in counted.rows))
    sources = {
        name: _outcomes({key: num for key, num in counted.rows.items() if key[0] == name})
        for name in names
    }
    return {
        **total,
        "held_out": dict(sorted(held_out.items())),
        "overlap": {
            name: {kind: counted.overlap[name, kind] for kind in KINDS}
            for name in sorted(overlap.names)
        },
        "sources": sources,
    }


def _outcomes(rows: Mapping[tuple[str, str], int]) -> Json:
    by_outcome: Counter[str] = Counter()
    for (_, outcome), number in rows.items():
        by_outcome[outcome] += number
    rows_in, kept, held_out = (
        by_outcome.total(),
        by_outcome.pop(KEPT, 0),
        by_outcome.pop(HELD_OUT, 0),
    )
    return {
        "rows_in": rows_in,
        "rows_kept": kept,
        "rows_held_out": held_out,
        "rejected": dict(sorted(by_outcome.items())),
    }


def _nothing_left(cleaned: Sequence[Artifact], num_rows: int, num_taken: int) -> str:
    raw = sum(artifact.stats["rows_in"] for artifact in cleaned)
    taken = f" ({num_taken} of them for `dedup.holdout`)" if num_taken else ""
    return (
        f"No training pair is left: of {raw}, `clean` dropped {raw - num_rows} and `dedup` "
        f"{num_rows}{taken}. Look at the rejected rows, or give more text."
    )
