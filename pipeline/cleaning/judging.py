"""The rules on a corpus, batch by batch: here, or many at once where the compute seam puts them."""

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cleaning.patterns import PUNCTUATION, replace_all
from pipeline.cleaning.rules import Applied, apply
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.job import Job
from pipeline.tables import PAIRS, read_batches
from pipeline.text import normalise_column
from pipeline.whole_file import whole_file

SCRATCH = "scratch"
BATCHES_AT_ONCE = 32
"""Judged by one call of the compute seam: about two million rows, which scratch files hold."""


class Judged(NamedTuple):
    """A batch of raw pairs after rewriting and rules."""

    applied: Applied
    num_changed: int
    """Rows of which a side is not what it was in the file."""


class Judge(NamedTuple):
    """What is done to each pair of a source."""

    source: str
    parameters: RuleParameters

    def __call__(self, raw: pa.RecordBatch) -> Judged:
        """Rewrite and judge a batch of `src`, `tgt` and `line`; rows come out as `PAIRS`."""
        pairs = self._pairs(raw)
        src, tgt = (pc.not_equal(raw[side], pairs[side]) for side in ("src", "tgt"))
        num_changed = int(pc.sum(pc.or_(src, tgt)).as_py() or 0)
        return Judged(apply(pairs, self.parameters), num_changed)

    def _pairs(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        src, tgt = (self._rewritten(raw[side]) for side in ("src", "tgt"))
        indices = pa.array([0] * raw.num_rows, pa.int32())
        names = pa.DictionaryArray.from_arrays(indices, pa.array([self.source], pa.string()))
        return pa.RecordBatch.from_arrays([src, tgt, names, raw["line"]], schema=PAIRS)

    def _rewritten(self, texts: pa.StringArray) -> pa.StringArray:
        config = self.parameters
        if config.normalise:
            texts = normalise_column(texts)
        replacements = [*(PUNCTUATION if config.punctuation else ()), *config.replace]
        if not replacements:
            return texts
        texts = replace_all(texts, replacements)
        return normalise_column(texts, entities=False) if config.normalise else texts


def judged(raws: Iterable[pa.RecordBatch], judge: Judge, job: Job) -> Iterator[Judged]:
    """Every batch judged, in order. A corpus of one batch is not worth a cluster."""
    batches = iter(raws)
    first = list(itertools.islice(batches, 2))
    if len(first) < 2:
        yield from (judge(raw) for raw in first)
        return
    batches = itertools.chain(first, batches)
    while folders := list(_stored(itertools.islice(batches, BATCHES_AT_ONCE), job.out / SCRATCH)):
        yield from _spread(folders, judge, job)


def _stored(raws: Iterable[pa.RecordBatch], scratch: Path) -> Iterator[Path]:
    """A folder for each batch, which is held no longer."""
    for number, raw in enumerate(raws):
        folder = scratch / f"{number:05d}"
        folder.mkdir(parents=True)
        _store(raw, folder / "raw.arrow")
        yield folder


def _spread(folders: Sequence[Path], judge: Judge, job: Job) -> Iterator[Judged]:
    """Batches judged by tasks of their own."""
    counts = job.map(partial(judge_stored, judge=judge), [*map(str, folders)])
    for folder, num_changed in zip(folders, counts, strict=True):
        kept, rejected = (_load(folder / f"{name}.arrow") for name in Applied._fields)
        yield Judged(Applied(kept, rejected), num_changed)
    shutil.rmtree(job.out / SCRATCH)


def judge_stored(folder: str, judge: Judge) -> int:
    """Judge the batch that a folder holds, and store what becomes of it; the rows changed."""
    found = judge(_load(Path(folder) / "raw.arrow"))
    for name, batch in found.applied._asdict().items():
        _store(batch, Path(folder) / f"{name}.arrow")
    return found.num_changed


def _store(batch: pa.RecordBatch, path: Path) -> None:
    with (
        whole_file(path) as partial_path,
        pa.OSFile(str(partial_path), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)


def _load(path: Path) -> pa.RecordBatch:
    [batch] = read_batches([path])
    return batch
