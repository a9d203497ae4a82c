"""Stage 5: rows to piece ids, shuffled once.

Out: `part-*.arrow` of training pairs in an order drawn by hash, `dev/NAME.arrow` in file order; each
one record batch of `src_ids` and `tgt_ids` without begin and end marks.

Training rows are sorted by a hash of (source, line) in two passes over bounded pieces, like cards:
each piece is encoded and sorted by itself, then each run of shards takes its range of hashes from
all of them. So the order depends on the rows alone, and any part can be lost and made again.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.artifact import Artifact, Json
from pipeline.config import TokenizeConfig
from pipeline.errors import CorpusError
from pipeline.job import Job
from pipeline.pieces.row_hash import row_hashes
from pipeline.pieces.tokenizer import Side, Tokenizer
from pipeline.reading.formats import read_corpus
from pipeline.tables import open_parquet
from pipeline.text import normalise_column
from pipeline.whole_file import whole_file

SIDES: tuple[Side, Side] = ("src", "tgt")
GATHERED_ROWS = 1 << 18
"""Rows that one task puts in order, more or less: each opens every piece, so few tasks are better."""
MAX_EXAMPLES = 10


class Piece(NamedTuple):
    """A row group of a Parquet file, and where its encoded rows go."""

    path: str
    row_group: int
    out: str


class Shard(NamedTuple):
    """The rows whose hash is in [low, high], and where they go."""

    low: int
    high: int
    out: str


class Encoded(NamedTuple):
    """What became of a dev set."""

    rows: int
    over_long: int
    src_tokens: int
    tgt_tokens: int


class EncodedPiece(NamedTuple):
    """What became of a piece."""

    counts: Encoded
    over_long: Counter[str]
    """By source."""
    changed: int
    """Pairs of which decoding does not give both sides back, over-long ones included."""
    examples: list[tuple[str, int]]
    """The first of them: source, line."""


def tokenize(
    config: TokenizeConfig,
    dedup: Artifact,
    vocab: Artifact,
    dev: Mapping[str, Artifact],
    job: Job,
) -> Json:
    """Encode and shuffle the training pairs; encode the dev sets.

    Raises:
        CorpusError: If no training pair is short enough.
    """
    scratch = job.out / "scratch"
    scratch.mkdir()
    pieces = list(_pieces(dedup.paths("part-*.parquet"), scratch))
    encode = partial(encode_piece, tokenizer=str(vocab.folder), max_pieces=config.max_pieces)
    made = job.map(encode, pieces, lambda done: job.progress(done, len(pieces), "pieces"))
    rows_in = dedup.stats["rows_kept"]
    total = Encoded(*(sum(column) for column in zip(*(each.counts for each in made), strict=True)))
    assert rows_in == total.rows + total.over_long, "rows are lost"
    if not total.rows:
        raise CorpusError(
            f"All {rows_in} training pairs have a side of more than {config.max_pieces} pieces. "
            "Raise `tokenize.max_pieces` or give shorter sentences."
        )
    shards = _shards(-(-total.rows // config.rows_per_shard), job.out)
    runs = _runs(shards, GATHERED_ROWS // config.rows_per_shard)
    gather = partial(gather_shards, pieces=[piece.out for piece in pieces])
    assert sum(job.map(gather, runs)) == total.rows, "rows are lost"
    shutil.rmtree(scratch)
    tokenizer = Tokenizer(vocab.folder)
    return {
        "rows_in": rows_in,
        "rows_kept": total.rows,
        "over_long": total.over_long,
        "over_long_by_source": dict(
            sorted(sum((each.over_long for each in made), Counter()).items())
        ),
        "src_tokens": total.src_tokens,
        "tgt_tokens": total.tgt_tokens,
        "round_trip": _round_trip(made, rows_in),
        "vocab_size": tokenizer.vocab_size,
        "src_vocab_size": tokenizer.src_vocab_size,
        "tokenizer": tokenizer.digest,
        "dev": {
            name: _encode_dev(name, artifact, tokenizer, config, job.out)._asdict()
            for name, artifact in dev.items()
        },
    }


def encode_piece(piece: Piece, tokenizer: str, max_pieces: int) -> EncodedPiece:
    """Encode one row group and sort it by row hash. Its text is normalised already."""
    with open_parquet(Path(piece.path)) as file:
        rows = file.read_row_group(piece.row_group).combine_chunks()
    sources, lines = _whole(rows["source"]), rows["line"].to_numpy()
    table, returns = _encode([_whole(rows[side]) for side in SIDES], _tokenizer(tokenizer))
    table = table.append_column("hash", pa.array(row_hashes(sources, lines)))
    fits = _fits(table, max_pieces)
    order = np.flatnonzero(fits)
    order = order[np.argsort(table["hash"].to_numpy()[order], kind="stable")]
    kept = table.take(order)
    _write(kept, Path(piece.out))
    names = sources.dictionary.take(sources.indices)
    changed = np.flatnonzero(~returns)
    return EncodedPiece(
        _counted(kept, table.num_rows),
        Counter(names.filter(pa.array(~fits)).to_pylist()),
        len(changed),
        [(names[row].as_py(), int(lines[row])) for row in changed[:MAX_EXAMPLES].tolist()],
    )


def gather_shards(run: Sequence[Shard], pieces: Sequence[str]) -> int:
    """Collect shards that follow each other from all pieces; the number of rows."""
    first, last = run[0], run[-1]
    parts = [_range(piece, first.low, last.high) for piece in pieces]
    table = pa.concat_tables(parts)
    hashes = table["hash"].to_numpy()
    order = np.argsort(hashes, kind="stable")
    edges = np.searchsorted(hashes[order], np.array([shard.low for shard in run], np.uint64))
    ordered = table.drop_columns("hash").take(order)
    for shard, start, end in zip(run, edges, [*edges[1:], len(order)], strict=True):
        _write(ordered.slice(start, end - start), Path(shard.out))
    return int(table.num_rows)


def _range(piece: str, low: int, high: int) -> pa.Table:
    """The rows of a piece whose hash is in [low, high], mapped from the file."""
    with pa.memory_map(piece) as source:
        table = pa.ipc.open_file(source).read_all()
    hashes = table["hash"].to_numpy()
    start = int(np.searchsorted(hashes, np.uint64(low)))
    end = int(np.searchsorted(hashes, np.uint64(high), side="right"))
    return table.slice(start, end - start)


def _round_trip(made: Sequence[EncodedPiece], rows: int) -> Json:
    """How many training pairs decoding gives back as they are; the first others by their place."""
    changed = sum(each.changed for each in made)
    examples = [example for each in made for example in each.examples][:MAX_EXAMPLES]
    return {
        "share": (rows - changed) / rows,
        "changed": changed,
        "examples": [{"source": source, "line": line} for source, line in examples],
    }


def _pieces(paths: Sequence[Path], scratch: Path) -> Iterator[Piece]:
    for shard, path in enumerate(paths):
        for group in range(pq.read_metadata(path).num_row_groups):
            yield Piece(str(path), group, str(scratch / f"{shard:05d}-{group:05d}.arrow"))


def _shards(number: int, out: Path) -> list[Shard]:
    """Equal ranges of the 64-bit hash; both ends inclusive."""
    edges = [(1 << 64) * index // number for index in range(number + 1)]
    return [
        Shard(edges[index], edges[index + 1] - 1, str(out / f"part-{index:05d}.arrow"))
        for index in range(number)
    ]


def _runs(shards: Sequence[Shard], length: int) -> list[list[Shard]]:
    length = max(1, length)
    return [list(shards[at : at + length]) for at in range(0, len(shards), length)]


def _encode_dev(
    name: str, artifact: Artifact, tokenizer: Tokenizer, config: TokenizeConfig, out: Path
) -> Encoded:
    batches = list(read_corpus(artifact.folder))
    columns = [pa.chunked_array([batch[side] for batch in batches], pa.string()) for side in SIDES]
    texts = [normalise_column(each) if tokenizer.normalises else _whole(each) for each in columns]
    table, _ = _encode(texts, tokenizer)
    kept = table.filter(pa.array(_fits(table, config.max_pieces)))
    _write(kept, out / "dev" / f"{name}.arrow")
    return _counted(kept, table.num_rows)


def _encode(texts: Sequence[pa.Array], tokenizer: Tokenizer) -> tuple[pa.Table, np.ndarray]:
    """Ids of the pairs, and whether decoding gives back both sides of each."""
    src, tgt = (
        tokenizer.encode_column(column, side) for column, side in zip(texts, SIDES, strict=True)
    )
    return pa.table({"src_ids": src.ids, "tgt_ids": tgt.ids}), src.returns & tgt.returns


def _fits(table: pa.Table, max_pieces: int) -> np.ndarray:
    return np.asarray(np.maximum(*(_lengths(table, side) for side in SIDES)) <= max_pieces)


def _counted(kept: pa.Table, rows_in: int) -> Encoded:
    tokens = (int(_lengths(kept, side).sum()) for side in SIDES)
    return Encoded(kept.num_rows, rows_in - kept.num_rows, *tokens)


def _lengths(table: pa.Table, side: str) -> np.ndarray:
    return np.asarray(_whole(table[f"{side}_ids"]).value_lengths().to_numpy())


@lru_cache(maxsize=1)
def _tokenizer(folder: str) -> Tokenizer:
    """Loaded once in each worker process."""
    return Tokenizer(Path(folder))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; with one chunk it is that chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _write(table: pa.Table, path: Path) -> None:
    """One record batch, so that a reader maps each column as one piece of memory."""
    path.parent.mkdir(exist_ok=True)
    with (
        whole_file(path) as partial_path,
        pa.OSFile(str(partial_path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        no_rows = [pa.RecordBatch.from_pylist([], schema=table.schema)]
        for batch in table.combine_chunks().to_batches() or no_rows:
            writer.write_batch(batch)
