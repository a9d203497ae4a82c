"""Stage 1: a source's two sides, verified and whole.

Out: `src` and `tgt`, the files' own bytes (plain or gzip).
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.artifact import Json
from pipeline.builtin.quickstart import pairs
from pipeline.config import BuiltinSource, FileSource, Source
from pipeline.corpus import read_pairs
from pipeline.errors import CorpusError
from pipeline.fetch import fetch
from pipeline.job import Job

SIDES = ("src", "tgt")


def download(source: Source, job: Job) -> Json:
    """Fetch or make one parallel corpus, and read it once: the corpus arrives whole or not at all.

    Raises:
        CorpusError: If a file is missing or damaged, or the two sides do not align.
        TradukoError: If an address cannot be reached.
    """
    if source.builtin:
        stats = _make(source.builtin, job.out)
    else:
        stats = {side: _fetch(getattr(source, side), job.out / side, job) for side in SIDES}
    num_rows = sum(batch.num_rows for batch in _read(source, job.out))
    if source.num_rows not in {None, num_rows}:
        raise CorpusError(
            f"Source `{source.name}` must hold {source.num_rows} pairs (`num_rows`), "
            f"but holds {num_rows}."
        )
    return {**stats, "rows": num_rows}


def _read(source: Source, out: Path) -> Iterator[pa.RecordBatch]:
    """All rows, with errors that name the files by where they came from."""
    src, tgt = (file.address if file else source.name for file in (source.src, source.tgt))
    return read_pairs(out / "src", out / "tgt", names=(src, tgt))


def _make(builtin: BuiltinSource, out: Path) -> Json:
    made = pairs(builtin.split, builtin.num_train)
    for index, side in enumerate(SIDES):
        text = "".join(f"{pair[index]}\n" for pair in made)
        (out / side).write_text(text, encoding="utf-8", newline="\n")
    return {"builtin": builtin.corpus, "split": builtin.split}


def _fetch(file: FileSource, target: Path, job: Job) -> Json:
    fetched = fetch(
        file.address,
        target,
        file.sha256,
        job.mirrors,
        on_progress=lambda done, total: job.progress(done, total, "bytes", Path(file.address).name),
    )
    return {"address": fetched.address, "bytes": fetched.size_bytes, "sha256": fetched.sha256}
