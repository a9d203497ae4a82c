"""Stage 1: a source's text, verified and whole.

Out: `src` and `tgt`, or `pairs`, one file of both sides: the files' own bytes, plain or packed;
`layout.json`, where there is more to know to read them. Where the recipe says to leave out bad rows,
they stay in these files, are left out by whoever reads them, and stand in `rejected.jsonl`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from pipeline.artifact import Json
from pipeline.builtin.quickstart import pairs
from pipeline.errors import CorpusError
from pipeline.fetching.address import file_name
from pipeline.fetching.archives import extract_all, first_members, is_archive
from pipeline.fetching.fetch import Fetched
from pipeline.fetching.partial import Progress
from pipeline.job import Job
from pipeline.reading.drift import Drift, told
from pipeline.reading.faults import Fault, Faults
from pipeline.reading.formats import SIDES, read_corpus, write_layout
from pipeline.sources import BuiltinSource, FileSource, Source

REJECTED_FILE = "rejected.jsonl"
"""Of each row left out: source, file, line, byte, kind, what is wrong, and its first bytes."""

_MAX_MEMBERS_TOLD = 12


def download(source: Source, job: Job) -> Json:
    """Fetch or make one parallel corpus, and read it once: the corpus arrives whole or not at all.

    Raises:
        CorpusError: If a file is missing or damaged, the two sides do not align, or rows are no pairs
            and the recipe does not say to leave them out.
        TradukoError: If an address cannot be reached.
    """
    names = [source.name, source.name]
    if source.builtin:
        stats = _make(source.builtin, job.out)
    else:
        stats = _fetch_all(source, job)
        names = [_told_as(file) for file in stats.values()]
    rows = _read(source, names, job)
    num_rows = rows["rows"]
    if source.num_rows not in {None, num_rows}:
        raise CorpusError(
            f"Source `{source.name}` must hold {source.num_rows} pairs (`num_rows`), "
            f"but holds {num_rows}."
        )
    about = {"licence": source.licence, "citation": source.citation}
    return {**stats, **rows, **{name: text for name, text in about.items() if text}}


def _read(source: Source, names: Sequence[str], job: Job) -> Json:
    """Read the stored corpus once, and say what a person should know about its rows."""
    drift = Drift()
    num_rows = 0
    with ExitStack() as stack:
        on_reject = _recorder(source, job.out, stack) if source.on_bad_rows == "reject" else None
        faults = Faults(source.on_bad_rows, on_reject)
        for batch in read_corpus(job.out, names, faults):
            num_rows += batch.num_rows
            drift.update(batch["src"], batch["tgt"], batch["line"].to_numpy())
    stats: Json = {"rows": num_rows}
    if source.on_bad_rows == "reject":
        rejected = dict(sorted(faults.rejected.items()))
        stats |= {"rows_rejected": faults.rejected.total(), "rejected": rejected}
    if faults.left_out:
        stats["left_out"] = dict(sorted(faults.left_out.items()))
    if faults.rejected:
        job.say(
            f"Source `{source.name}`: {faults.rejected.total():,} of "
            f"{num_rows + faults.rejected.total():,} rows are no pairs and left out; see "
            f"{REJECTED_FILE} beside its text."
        )
    if shifts := drift.shifts():
        stats["drift"] = [shift._asdict() for shift in shifts]
        for sentence in told(shifts, *_sides(names)):
            job.say(f"Source `{source.name}`: {sentence}")
    return stats


def _told_as(file: Json) -> str:
    """What messages call a file."""
    return f"{file['address']}!{file['member']}" if "member" in file else str(file["address"])


def _sides(names: Sequence[str]) -> tuple[str, str]:
    """What to call the two sides."""
    if len(names) == len(SIDES):
        return f"`{names[0]}`", f"`{names[1]}`"
    return f"the source side of `{names[0]}`", f"the target side of `{names[0]}`"


def _recorder(source: Source, out: Path, stack: ExitStack) -> Callable[[Fault], None]:
    """Writes rejected rows down as they come."""
    file = stack.enter_context((out / REJECTED_FILE).open("w", encoding="utf-8", newline="\n"))

    def record(fault: Fault) -> None:
        row = {
            "source": source.name,
            "file": fault.file,
            "line": fault.line,
            "byte": fault.byte,
            "kind": fault.kind,
            "what": fault.what,
            "raw": fault.raw.decode(errors="backslashreplace"),
        }
        file.write(f"{json.dumps(row, ensure_ascii=False)}\n")

    return record


def _make(builtin: BuiltinSource, out: Path) -> Json:
    made = pairs(builtin.split, builtin.num_train)
    for index, side in enumerate(SIDES):
        text = "".join(f"{pair[index]}\n" for pair in made)
        (out / side).write_text(text, encoding="utf-8", newline="\n")
    return {"builtin": builtin.corpus, "split": builtin.split}


def _fetch_all(source: Source, job: Job) -> Json:
    """The two sides, or the one file of both, and how to read them."""
    if source.layout:
        write_layout(job.out, source.layout)
    stats: dict[str, Json] = {}
    for place, file in source.files.items():
        if file.member is None:
            stats[place] = _fetch(file, job.out / place, job)
        elif place not in stats:
            stats |= _extract(file, source.files, job)
    return {place: stats[place] for place in source.files}


def _fetch(file: FileSource, target: Path, job: Job) -> Json:
    fetched = job.files.place(file, target, _progress(file, job))
    if is_archive(target, fetched.address):
        names = first_members(target, _MAX_MEMBERS_TOLD, fetched.address)
        raise CorpusError(
            f"`{fetched.address}` is an archive: `member` must name the file in it. It holds "
            f"{', '.join(f'`{name}`' for name in names) or 'no file'}."
        )
    return _stats(fetched)


def _extract(archive: FileSource, files: Mapping[str, FileSource], job: Job) -> dict[str, Json]:
    """All files of a source that are in one archive: what was fetched and taken, by place."""
    members = {
        place: file.member
        for place, file in files.items()
        if file.member and file.address == archive.address
    }
    with job.files.open(archive, _progress(archive, job)) as fetched:
        found = extract_all(
            fetched.path,
            {member: job.out / place for place, member in members.items()},
            fetched.address,
            on_progress=_progress(archive, job),
        )
    return {
        place: {**_stats(fetched), "member": found[member].member}
        for place, member in members.items()
    }


def _progress(file: FileSource, job: Job) -> Progress:
    name = file_name(file.address)
    return lambda done, total: job.progress(done, total, "bytes", name)


def _stats(fetched: Fetched) -> Json:
    """Of the whole file, or archive."""
    return {"address": fetched.address, "bytes": fetched.size_bytes, "sha256": fetched.sha256}
