"""Stage 2: a source's pairs, normalised and rewritten; each kept, or rejected by a named rule.

Out: `part-*.parquet` of kept rows, `rejected/part-*.parquet` with the rule that rejected each,
`statistics.csv` with histograms of both.
"""

import contextlib
from collections import Counter

from pipeline.artifact import Artifact, Json
from pipeline.cleaning.judging import Judge, judged
from pipeline.cleaning.language_id import is_known
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.cleaning.statistics import STATISTICS_FILE, Histograms
from pipeline.config import CleanConfig
from pipeline.job import Job
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_corpus, stored_layout
from pipeline.tables import PAIRS, REJECTED, ParquetShards


def clean(
    config: CleanConfig, languages: tuple[str, str], source: str, download: Artifact, job: Job
) -> Json:
    """Rewrite and judge each pair by itself, in file order and bounded memory.

    Args:
        config: The recipe's section.
        languages: Of the source and the target side, as the recipe writes them.
        source: The source's name, for the `source` column.
        download: The raw files.
        job: The workplace.
    """
    src, tgt = languages
    parameters = RuleParameters(**dict(config), src_language=src, tgt_language=tgt)
    _say_what_is_not_checked(parameters, job)
    rejected_by: Counter[str] = Counter()
    histograms = Histograms()
    total = download.stats["rows"]
    rows_in = rows_changed = 0
    faults = Faults(stored_layout(download.folder).on_bad_rows)
    with contextlib.ExitStack() as stack:
        kept = stack.enter_context(ParquetShards(job.out, PAIRS))
        rejected = stack.enter_context(ParquetShards(job.out / "rejected", REJECTED))
        raws = read_corpus(download.folder, faults=faults)
        for applied, num_changed in judged(raws, Judge(source, parameters), job):
            kept.write(applied.kept)
            rejected.write(applied.rejected)
            histograms.add("kept", applied.kept)
            histograms.add("rejected", applied.rejected)
            rejected_by.update(applied.rejected["rule"].to_pylist())
            rows_in += applied.kept.num_rows + applied.rejected.num_rows
            rows_changed += num_changed
            job.progress(rows_in, total, "rows")
    assert faults.rejected.total() == download.stats.get("rows_rejected", 0), "rows are lost"
    assert rows_in == total == kept.num_rows + rejected.num_rows, "rows are lost"
    histograms.write(job.out / STATISTICS_FILE)
    return {
        "rows_in": rows_in,
        "rows_changed": rows_changed,
        "rows_kept": kept.num_rows,
        "rejected": dict(sorted(rejected_by.items())),
    }


def _say_what_is_not_checked(parameters: RuleParameters, job: Job) -> None:
    if "language" in parameters.rules_off:
        return
    for _, language in parameters.languages:
        if not is_known(language):
            job.say(
                f"The model of languages does not know `{language}`: whether sentences are in it is "
                "not checked."
            )
