"""What the tests of the data stages share: artifacts made from a few lines of text."""

import dataclasses
import gzip
import itertools

import pyarrow as pa
import pytest

from pipeline.artifact import Identity, Root
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.compute import InProcess
from pipeline.config import ComputeConfig, DedupConfig, VocabConfig
from pipeline.dag import nodes
from pipeline.dedup import dedup
from pipeline.fetching.fetched import Files
from pipeline.fetching.lock import LOCK_FILE, Lock
from pipeline.file_digests import FileDigests
from pipeline.job import Job
from pipeline.stages import STAGE_NAMES
from pipeline.tables import PAIRS, ParquetShards, read_batches
from pipeline.vocab import vocab


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path / "root", lambda line: None)


@pytest.fixture
def publish(root, make_job):
    """Publishes what `stage(job)` makes; says which stage it is and gives the artifact."""
    numbers = itertools.count()

    def run(name, stage, aside=(), **job_fields):
        number = next(numbers)

        def build(out, work):
            job = make_job(f"{name}-{number}")
            return stage(dataclasses.replace(job, out=out, work=work, **job_fields))

        identity = Identity(name, 1, {"number": number}, (), aside=aside)
        artifact, was_there = root.produce(identity, build)
        assert not was_there
        return artifact

    return run


@pytest.fixture
def downloaded(publish):
    """What `download` makes of these lines, plain or gzip."""

    def make(src, tgt, packed=False):
        def stage(job):
            for side, lines in (("src", src), ("tgt", tgt)):
                text = "".join(f"{line}\n" for line in lines).encode()
                (job.out / side).write_bytes(gzip.compress(text) if packed else text)
            return {"rows": len(src)}

        return publish("download", stage)

    return make


@pytest.fixture
def cleaned(publish):
    """What `clean` makes of pairs that it all keeps, in files of so many rows."""

    def make(pairs, source="corpus", rows_per_file=1_000_000):
        def stage(job):
            with ParquetShards(job.out, PAIRS, rows_per_file) as shards:
                shards.write(_batch(pairs, source))
            return {"rows_in": len(pairs), "rows_kept": len(pairs), "rejected": {}}

        return publish("clean", stage)

    return make


@pytest.fixture
def deduped(cleaned, publish):
    """What `dedup` makes of pairs without duplicates, in files of so many rows."""

    def make(pairs, source="corpus", rows_per_file=1_000_000):
        if rows_per_file < len(pairs):
            return cleaned(pairs, source, rows_per_file)
        parts = [cleaned(pairs, source)]
        return publish("dedup", lambda job: dedup(DedupConfig(), parts, {}, job))

    return make


@pytest.fixture
def vocabulary(publish):
    """A small vocabulary; byte pairs, being learnt in a moment."""

    def make(text, size=120, kind="bpe", normalised=True):
        config = VocabConfig(size=size, kind=kind)
        return publish("vocab", lambda job: vocab(config, normalised, text, job))

    return make


@pytest.fixture
def rows_of():
    """The rows of an artifact's tables, each as a tuple of its columns."""

    def read(artifact, pattern="part-*"):
        rows = []
        for batch in read_batches(artifact.paths(pattern)):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return rows

    return read


@pytest.fixture
def nothing_is_left(root):
    """Whether a failed stage left no manifest and no attempt."""

    def check():
        places = [place for place in root.folder.glob("*/*") if place.parent.name != "work"]
        return all(list(place.iterdir()) == [] for place in places if place.is_dir())

    return check


@pytest.fixture(scope="session")
def pair_batch():
    """Pairs as a batch, numbered by `line`."""

    def make(*pairs):
        sides = zip(*pairs, strict=True) if pairs else ((), ())
        src, tgt = (pa.array(side, pa.string()) for side in sides)
        lines = pa.array(range(1, len(pairs) + 1), pa.int64())
        return pa.record_batch({"src": src, "tgt": tgt, "line": lines})

    return make


@pytest.fixture(scope="session")
def keeps(pair_batch):
    """What a rule says of a pair, which must not depend on its direction or its neighbours."""

    def ask(rule, src, tgt, **bounds):
        table = pair_batch(("Guten Tag", "Hello"), (src, tgt), (tgt, src), ("", ""))
        answers = set()
        for part in (table, table.slice(1, 2)):
            keep = rule(part, RuleParameters(**bounds))
            assert isinstance(keep, pa.BooleanArray)
            assert len(keep) == part.num_rows
            assert keep.null_count == 0
            first = 1 if part.num_rows == 4 else 0
            answers |= set(keep.to_pylist()[first : first + 2])
        assert len(answers) == 1
        return answers.pop()

    return ask


@pytest.fixture(scope="session")
def build_stages():
    """Builds a recipe's graph up to a stage, in this process; artifacts by name of their node."""

    def build(config, folder, last):
        root = Root(folder, lambda line: None)
        compute, settings, done = InProcess(), ComputeConfig(), {}
        files = Files(folder / "fetched", {}, Lock(folder / LOCK_FILE, _silent), _silent)
        wanted = STAGE_NAMES[: STAGE_NAMES.index(last) + 1]
        for node in nodes(config, FileDigests(folder / "digests.json")):
            if node.stage.name in wanted:

                def stage(out, work, node=node):
                    job = Job(out, work, compute, settings, files, _silent, _silent)
                    return node.stage.run(node, config, done, job)

                done[node.name], _ = root.produce(node.identity(done), stage)
        return done

    return build


def _silent(*_):
    pass


def _batch(pairs, source):
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    names = pa.DictionaryArray.from_arrays(pa.array([0] * len(src), pa.int32()), [source])
    texts = [pa.array(side, pa.string()) for side in (src, tgt)]
    lines = pa.array(range(1, len(src) + 1), pa.int64())
    return pa.RecordBatch.from_arrays([*texts, names, lines], schema=PAIRS)
