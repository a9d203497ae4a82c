"""Stage 1: a source's text, verified and whole.

Out: `src` and `tgt`, the files' own bytes (plain or gzip); or `pairs`, one file of both sides, with
`layout.json`.
"""

from pathlib import Path

from pipeline.artifact import Json
from pipeline.builtin.quickstart import pairs
from pipeline.config import BuiltinSource, FileSource, Source
from pipeline.errors import CorpusError
from pipeline.fetch import fetch
from pipeline.formats import PAIRS_FILE, read_corpus, write_layout
from pipeline.job import Job

SIDES = ("src", "tgt")


def download(source: Source, job: Job) -> Json:
    """Fetch or make one parallel corpus, and read it once: the corpus arrives whole or not at all.

    Raises:
        CorpusError: If a file is missing or damaged, or the two sides do not align.
        TradukoError: If an address cannot be reached.
    """
    names = [source.name, source.name]
    if source.builtin:
        stats = _make(source.builtin, job.out)
    else:
        stats = _fetch_all(source, job)
        names = [fetched["address"] for fetched in stats.values()]
    num_rows = sum(batch.num_rows for batch in read_corpus(job.out, names))
    if source.num_rows not in {None, num_rows}:
        raise CorpusError(
            f"Source `{source.name}` must hold {source.num_rows} pairs (`num_rows`), "
            f"but holds {num_rows}."
        )
    return {**stats, "rows": num_rows}


def _make(builtin: BuiltinSource, out: Path) -> Json:
    made = pairs(builtin.split, builtin.num_train)
    for index, side in enumerate(SIDES):
        text = "".join(f"{pair[index]}\n" for pair in made)
        (out / side).write_text(text, encoding="utf-8", newline="\n")
    return {"builtin": builtin.corpus, "split": builtin.split}


def _fetch_all(source: Source, job: Job) -> Json:
    """The two sides, or the one file of both and how to read it."""
    if source.layout:
        write_layout(job.out, source.layout)
    places = (PAIRS_FILE,) if source.layout else SIDES
    return {place: _fetch(getattr(source, place), job.out / place, job) for place in places}


def _fetch(file: FileSource, target: Path, job: Job) -> Json:
    name = Path(file.address.partition("?")[0]).name  # what follows may hold credentials
    fetched = fetch(
        file.address,
        target,
        file.sha256,
        job.mirrors,
        on_progress=lambda done, total: job.progress(done, total, "bytes", name),
    )
    return {"address": fetched.address, "bytes": fetched.size_bytes, "sha256": fetched.sha256}
