"""Stage 2: a source's pairs, normalised; each kept, or rejected by a named rule.

Out: `part-*.parquet` of kept rows, `rejected/part-*.parquet` with the rule that rejected each.
"""

import contextlib
from collections import Counter

import pyarrow as pa

from pipeline.artifact import Artifact, Json
from pipeline.config import CleanConfig
from pipeline.faults import Faults
from pipeline.formats import read_corpus, stored_layout
from pipeline.job import Job
from pipeline.rules import RuleParameters, apply
from pipeline.tables import PAIRS, REJECTED, ParquetShards
from pipeline.text import normalise_column


def clean(config: CleanConfig, source: str, download: Artifact, job: Job) -> Json:
    """Normalise and judge each pair by itself, in file order and bounded memory.

    Args:
        config: The recipe's section.
        source: The source's name, for the `source` column.
        download: The raw files.
        job: The workplace.
    """
    parameters = RuleParameters(
        min_words=config.min_words,
        max_words=config.max_words,
        max_chars=config.max_chars,
        max_word_ratio=config.max_word_ratio,
        max_char_ratio=config.max_char_ratio,
        min_copy_similarity=config.min_copy_similarity,
        off=frozenset(config.rules_off),
    )
    rejected_by: Counter[str] = Counter()
    total = download.stats["rows"]
    rows_in = 0
    faults = Faults(stored_layout(download.folder).on_bad_rows)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(ParquetShards(job.out, PAIRS))
        rejected = stack.enter_context(ParquetShards(job.out / "rejected", REJECTED))
        for raw in read_corpus(download.folder, faults=faults):
            applied = apply(_pairs(raw, source, config.normalise), parameters)
            kept.write(applied.kept)
            rejected.write(applied.rejected)
            rejected_by.update(applied.rejected["rule"].to_pylist())
            rows_in += raw.num_rows
            job.progress(rows_in, total, "rows")
    assert faults.rejected.total() == download.stats.get("rows_rejected", 0), "rows are lost"
    assert rows_in == total == kept.num_rows + rejected.num_rows, "rows are lost"
    return {
        "rows_in": rows_in,
        "rows_kept": kept.num_rows,
        "rejected": dict(sorted(rejected_by.items())),
    }


def _pairs(raw: pa.RecordBatch, source: str, normalised: bool) -> pa.RecordBatch:
    """Raw lines as rows of `PAIRS`."""
    src, tgt = raw["src"], raw["tgt"]
    if normalised:
        src, tgt = normalise_column(src), normalise_column(tgt)
    indices = pa.array([0] * raw.num_rows, pa.int32())
    names = pa.DictionaryArray.from_arrays(indices, pa.array([source], pa.string()))
    return pa.RecordBatch.from_arrays([src, tgt, names, raw["line"]], schema=PAIRS)
