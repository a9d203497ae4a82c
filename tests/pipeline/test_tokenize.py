"""Rows to piece ids: each once, in an order that hangs on the rows alone."""

import resource
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline import tables
from pipeline import tokenize as stage
from pipeline.batching import TokenShards
from pipeline.builtin.quickstart import pairs
from pipeline.compute import ONE_CPU
from pipeline.config import TokenizeConfig
from pipeline.errors import CorpusError
from pipeline.pieces.subwords import id_type
from pipeline.pieces.tokenizer import Tokenizer
from pipeline.train import load_tokens

PAIRS = tuple(pairs("train", 300))


@pytest.fixture
def pieces(deduped, vocabulary):
    """The vocabulary of all tests here."""
    return vocabulary(deduped(PAIRS, "for the vocabulary"))


@pytest.fixture
def run_tokenize(pieces, publish):
    def run(text, dev=None, **config):
        section = TokenizeConfig(**config)
        return publish(
            "tokenize", lambda job: stage.tokenize(section, text, pieces, dev or {}, job)
        )

    return run


@pytest.fixture
def decoded(pieces, rows_of):
    """The pairs in the tables of an artifact, as text."""
    tokenizer = Tokenizer(pieces.folder)

    def decode(artifact, pattern="part-*"):
        src, tgt = zip(*rows_of(artifact, pattern), strict=True)
        return list(zip(tokenizer.decode(src), tokenizer.decode(tgt), strict=True))

    return decode


def test_each_row_comes_once_and_in_another_order(run_tokenize, deduped, decoded):
    artifact = run_tokenize(deduped(PAIRS))
    rows = decoded(artifact)
    assert Counter(rows) == Counter(PAIRS)
    places = [PAIRS.index(row) for row in rows]
    assert abs(np.corrcoef(places, range(len(places)))[0, 1]) < 0.2
    assert [path.name for path in artifact.paths("*")] == ["part-00000.arrow"]


@pytest.mark.parametrize(
    ("batch_rows", "rows_per_file"), [(7, 1000), (65_536, 100), (65_536, 299), (40, 110)]
)
def test_the_order_does_not_depend_on_how_the_rows_are_cut(
    run_tokenize, deduped, monkeypatch, batch_rows, rows_per_file
):
    whole = run_tokenize(deduped(PAIRS))
    monkeypatch.setattr(tables, "BATCH_ROWS", batch_rows)
    cut = run_tokenize(deduped(PAIRS, rows_per_file=rows_per_file))
    assert cut.manifest.content == whole.manifest.content


def test_the_order_does_not_depend_on_what_else_is_there(run_tokenize, deduped, decoded):
    all_rows = decoded(run_tokenize(deduped(PAIRS)))
    some = set(PAIRS[:100])
    assert decoded(run_tokenize(deduped(PAIRS[:100]))) == [row for row in all_rows if row in some]


def test_each_source_has_an_order_of_its_own(run_tokenize, deduped, decoded):
    assert decoded(run_tokenize(deduped(PAIRS, "one"))) != decoded(
        run_tokenize(deduped(PAIRS, "two"))
    )


def test_shards_follow_each_other_in_the_same_order(run_tokenize, deduped, rows_of):
    text = deduped(PAIRS)
    several = run_tokenize(text, rows_per_shard=70)
    assert len(several.paths("part-*")) == 5
    assert rows_of(several) == rows_of(run_tokenize(text))
    rows = [file.rows for file in several.manifest.files]
    assert max(rows) < 2 * min(rows)


def test_shards_that_no_row_falls_into_can_be_trained_on(run_tokenize, deduped, rows_of):
    artifact = run_tokenize(deduped(PAIRS[:9]), rows_per_shard=1)
    assert 0 in [file.rows for file in artifact.manifest.files]
    shards = TokenShards([load_tokens(path) for path in artifact.paths("part-*")])
    assert len(shards) == 9
    lengths = [(len(src) + 1, len(tgt) + 1) for src, tgt in rows_of(artifact)]
    assert list(zip(shards.src_lengths, shards.tgt_lengths, strict=True)) == lengths


def test_rows_on_the_edge_of_two_shards_are_in_one(run_tokenize, deduped, decoded, monkeypatch):
    edge = 1 << 63
    hashes = np.array([edge, (1 << 64) - 1, edge - 1, 0], np.uint64)
    monkeypatch.setattr(stage, "row_hashes", lambda sources, lines: hashes)
    artifact = run_tokenize(deduped(PAIRS[:4]), rows_per_shard=2)
    first, second = (decoded(artifact, f"part-0000{number}.arrow") for number in (0, 1))
    assert first == [PAIRS[3], PAIRS[2]]
    assert second == [PAIRS[0], PAIRS[1]]


def test_a_shard_is_one_record_batch(run_tokenize, deduped):
    for path in run_tokenize(deduped(PAIRS, rows_per_file=40), rows_per_shard=100).paths("*"):
        with pa.memory_map(str(path)) as source:
            assert pa.ipc.open_file(source).num_record_batches == 1


def test_pairs_with_too_long_a_side_are_left_out_and_counted(
    run_tokenize, deduped, decoded, pieces
):
    tokenizer = Tokenizer(pieces.folder)
    src, tgt = (tokenizer.encode(side) for side in zip(*PAIRS, strict=True))
    longest = [max(len(one), len(other)) for one, other in zip(src, tgt, strict=True)]
    limit = int(np.median(longest))
    short = [pair for pair, length in zip(PAIRS, longest, strict=True) if length <= limit]
    assert limit in longest
    artifact = run_tokenize(deduped(PAIRS), max_pieces=limit)
    assert Counter(decoded(artifact)) == Counter(short)
    fits = [length <= limit for length in longest]
    assert artifact.stats | {"tokenizer": "", "dev": {}} == {
        "rows_in": 300,
        "rows_kept": len(short),
        "over_long": 300 - len(short),
        "over_long_by_source": {"corpus": 300 - len(short)},
        "src_tokens": sum(len(ids) for ids, fit in zip(src, fits, strict=True) if fit),
        "tgt_tokens": sum(len(ids) for ids, fit in zip(tgt, fits, strict=True) if fit),
        "round_trip": {"share": 1.0, "changed": 0, "examples": []},
        "vocab_size": tokenizer.vocab_size,
        "src_vocab_size": None,
        "tokenizer": "",
        "dev": {},
    }
    assert artifact.stats["tokenizer"] == tokenizer.digest


def test_over_long_pairs_are_counted_by_source(pieces, publish):
    batch = pa.record_batch(
        {
            "src": ["door", "door " * 60, "the door", "door " * 60, "door " * 60],
            "tgt": ["Tür", "Tür", "Tür " * 60, "Tür", "Tür"],
            "source": pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0, 1]), ["b", "a"]),
            "line": [1, 1, 2, 2, 3],
        },
    ).cast(tables.PAIRS)

    def write(job):
        with tables.ParquetShards(job.out, tables.PAIRS, rows_per_shard=2) as shards:
            shards.write(batch)
        return {"rows_kept": 5}

    text = publish("dedup", write)
    config = TokenizeConfig(max_pieces=100)
    made = publish("tokenize", lambda job: stage.tokenize(config, text, pieces, {}, job))
    assert made.stats["over_long"] == 4
    assert made.stats["over_long_by_source"] == {"a": 3, "b": 1}


def test_pairs_that_do_not_come_back_are_told_by_their_place(run_tokenize, deduped, decoded):
    odd = [("a \u0416", "Tür"), ("door", "Tür \u2585"), ("a \u0416", "x \u0416")]
    text = [*PAIRS[:20], *odd, *PAIRS[20:27]]
    made = run_tokenize(deduped(text, rows_per_file=7))
    assert made.stats["round_trip"] == {
        "share": 0.9,
        "changed": 3,
        "examples": [{"source": "corpus", "line": line} for line in (21, 22, 23)],
    }
    many = run_tokenize(deduped([(f"{number} \u0416", "Tür") for number in range(30)]))
    assert [each["line"] for each in many.stats["round_trip"]["examples"]] == list(range(1, 11))
    assert many.stats["round_trip"]["share"] == 0


def test_training_text_is_not_decoded_a_second_time(run_tokenize, deduped, decoded):
    """`clean` has normalised it: what was escaped twice stays escaped once, as in use."""
    text = [("a &lt; b", "a &amp; b")]
    artifact = run_tokenize(deduped([*PAIRS[:5], *text]))
    unknown = decoded(artifact)
    assert len([pair for pair in unknown if "lt" in pair[0] and "amp" in pair[1]]) == 1


@pytest.mark.parametrize("rows", [1, 100, 200, 1 << 19])
def test_shards_do_not_depend_on_how_many_a_task_gathers(run_tokenize, deduped, monkeypatch, rows):
    text = deduped(PAIRS, rows_per_file=90)
    expected = run_tokenize(text, rows_per_shard=50)
    monkeypatch.setattr(stage, "GATHERED_ROWS", rows)
    assert run_tokenize(text, rows_per_shard=50).manifest.content == expected.manifest.content


def test_few_files_are_open_however_many_pieces_there_are(run_tokenize, deduped, monkeypatch):
    text, most = deduped(PAIRS, rows_per_file=1), resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 40, most[1]))
    try:
        artifact = run_tokenize(text)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert artifact.stats["rows_kept"] == 300


def test_a_piece_of_long_rows_alone_is_harmless(run_tokenize, deduped, decoded):
    long = (" ".join(["door"] * 60), "Tür")
    artifact = run_tokenize(deduped([long, *PAIRS[:3], long], rows_per_file=1), max_pieces=100)
    assert Counter(decoded(artifact)) == Counter(PAIRS[:3])


def test_nothing_short_enough_is_an_error_that_says_what_to_do(
    run_tokenize, deduped, nothing_is_left
):
    message = r"All 300 training pairs have a side of more than 1 pieces\. Raise `tokenize.max_pi"
    with pytest.raises(CorpusError, match=message):
        run_tokenize(deduped(PAIRS), max_pieces=1)


def test_dev_sets_stay_in_file_order(run_tokenize, deduped, downloaded, decoded):
    dev = downloaded(*zip(*PAIRS[:50], strict=True))
    two = downloaded([" A  door. "], ["Eine T&uuml;r."], packed=True)
    artifact = run_tokenize(deduped(PAIRS), {"one": dev, "two": two})
    assert decoded(artifact, "dev/one.arrow") == list(PAIRS[:50])
    assert decoded(artifact, "dev/two.arrow") == [("A door.", "Eine Tür.")]
    assert artifact.stats["dev"]["one"]["rows"] == 50
    assert len(artifact.paths("part-*")) == 1


def test_a_dev_set_of_long_rows_alone_is_empty_and_counted(run_tokenize, deduped, downloaded):
    long = downloaded([" ".join(["door"] * 60)], ["Tür"])
    artifact = run_tokenize(deduped(PAIRS), {"dev": long}, max_pieces=100)
    expected = {"rows": 0, "over_long": 1, "src_tokens": 0, "tgt_tokens": 0}
    assert artifact.stats["dev"] == {"dev": expected}
    assert len(load_tokens(artifact.path("dev/dev.arrow"))) == 0


@pytest.mark.parametrize(("size", "kind"), [(65_536, pa.uint16()), (65_537, pa.int32())])
def test_ids_take_two_bytes_while_the_vocabulary_fits(
    run_tokenize, deduped, rows_of, monkeypatch, size, kind
):
    text = deduped(PAIRS)
    expected = rows_of(run_tokenize(text))

    class Large(Tokenizer):
        def __init__(self, folder):
            super().__init__(folder)
            self.src.id_type = id_type(size)

    stage._tokenizer.cache_clear()
    monkeypatch.setattr(stage, "Tokenizer", Large)
    artifact = run_tokenize(text, {})
    stage._tokenizer.cache_clear()
    [batch] = tables.read_batches(artifact.paths("*"))
    assert batch.schema.types == [pa.list_(kind), pa.list_(kind)]
    assert rows_of(artifact) == expected


def test_a_repeated_task_changes_nothing(run_tokenize, deduped, publish, pieces):
    """Engines retry tasks, and two copies of one may even run at a time."""

    class Twice:
        def map(self, function, items, on_done=None, need=ONE_CPU):
            return [[function(item), function(item)][1] for item in items]

    text = deduped(PAIRS, rows_per_file=90)
    section = TokenizeConfig(rows_per_shard=100)
    again = publish(
        "tokenize",
        lambda job: stage.tokenize(section, text, pieces, {}, job),
        compute=Twice(),
    )
    assert again.manifest.content == run_tokenize(text, rows_per_shard=100).manifest.content
    assert [file.path for file in again.manifest.files] == [
        f"part-{number:05d}.arrow" for number in range(3)
    ]
