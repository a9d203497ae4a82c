"""Stage 5: rows to piece ids, shuffled once.

Out: `part-*.arrow` of training pairs in an order drawn by hash, `dev/NAME.arrow` in file order; each
one record batch of `src_ids` and `tgt_ids` without begin and end marks.

Training rows are sorted by a hash of (source, line) in two passes over bounded pieces, like cards:
each piece is encoded and sorted by itself, then each shard takes its range of hashes from all of
them. So the order depends on the rows alone, and any part can be lost and made again.
"""

import hashlib
import shutil
import uuid
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
from pipeline.formats import read_corpus
from pipeline.job import Job
from pipeline.tokenizer import Tokenizer

ENCODE_ROWS = 8_192


class Piece(NamedTuple):
    """A row group of a Parquet file, and where its encoded rows go."""

    path: str
    row_group: int
    out: str


class Shard(NamedTuple):
    """The rows whose hash is in [low, high), and where they go."""

    low: int
    high: int
    out: str


class Encoded(NamedTuple):
    """What became of a piece or a dev set."""

    rows: int
    over_long: int
    src_tokens: int
    tgt_tokens: int


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
    counts = job.compute.map(encode, pieces, lambda done: job.progress(done, len(pieces), "pieces"))
    rows_in = dedup.stats["rows_kept"]
    total = Encoded(*(sum(column) for column in zip(*counts, strict=True)))
    assert rows_in == total.rows + total.over_long, "rows are lost"
    if not total.rows:
        raise CorpusError(
            f"All {rows_in} training pairs have a side of more than {config.max_pieces} pieces. "
            "Raise `tokenize.max_pieces` or give shorter sentences."
        )
    shards = _shards(-(-total.rows // config.rows_per_shard), job.out)
    gather = partial(gather_shard, pieces=[piece.out for piece in pieces])
    gathered = job.compute.map(gather, shards)
    assert sum(gathered) == total.rows, "rows are lost"
    shutil.rmtree(scratch)
    tokenizer = Tokenizer(vocab.folder)
    return {
        "rows_in": rows_in,
        "rows_kept": total.rows,
        "over_long": total.over_long,
        "src_tokens": total.src_tokens,
        "tgt_tokens": total.tgt_tokens,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": tokenizer.digest,
        "dev": {
            name: _encode_dev(name, artifact, tokenizer, config, job.out)._asdict()
            for name, artifact in dev.items()
        },
    }


def encode_piece(piece: Piece, tokenizer: str, max_pieces: int) -> Encoded:
    """Encode one row group and sort it by row hash."""
    rows = pq.ParquetFile(piece.path).read_row_group(piece.row_group)
    src, tgt = rows["src"].to_pylist(), rows["tgt"].to_pylist()
    table, encoded = _encode(src, tgt, _tokenizer(tokenizer), max_pieces)
    hashes = _row_hashes(rows["source"].to_pylist(), rows["line"].to_numpy())
    table = table.append_column("hash", pa.array(hashes[table["row"].to_numpy()]))
    order = np.argsort(table["hash"].to_numpy(), kind="stable")
    _write(table.drop_columns("row").take(order), Path(piece.out))
    return encoded


def gather_shard(shard: Shard, pieces: Sequence[str]) -> int:
    """Collect one range of hashes from all pieces, in hash order; the number of rows."""
    parts = []
    for piece in pieces:
        with pa.memory_map(piece) as source:
            table = pa.ipc.open_file(source).read_all()
            hashes = table["hash"].to_numpy()
            low = int(np.searchsorted(hashes, np.uint64(shard.low)))
            high = int(np.searchsorted(hashes, np.uint64(shard.high), side="right"))
            parts.append(table.slice(low, high - low))
    table = pa.concat_tables(parts)
    order = np.argsort(table["hash"].to_numpy(), kind="stable")
    _write(table.drop_columns("hash").take(order), Path(shard.out))
    return int(table.num_rows)


def _pieces(paths: Sequence[Path], scratch: Path) -> Iterator[Piece]:
    for shard, path in enumerate(paths):
        for group in range(pq.ParquetFile(path).num_row_groups):
            yield Piece(str(path), group, str(scratch / f"{shard:05d}-{group:05d}.arrow"))


def _shards(number: int, out: Path) -> list[Shard]:
    """Equal ranges of the 64-bit hash; both ends inclusive."""
    edges = [(1 << 64) * index // number for index in range(number + 1)]
    return [
        Shard(edges[index], edges[index + 1] - 1, str(out / f"part-{index:05d}.arrow"))
        for index in range(number)
    ]


def _encode_dev(
    name: str, artifact: Artifact, tokenizer: Tokenizer, config: TokenizeConfig, out: Path
) -> Encoded:
    batches = list(read_corpus(artifact.folder))
    src, tgt = (
        [text for batch in batches for text in batch[side].to_pylist()] for side in ("src", "tgt")
    )
    table, encoded = _encode(src, tgt, tokenizer, config.max_pieces)
    _write(table.drop_columns("row"), out / "dev" / f"{name}.arrow")
    return encoded


def _encode(
    src: Sequence[str], tgt: Sequence[str], tokenizer: Tokenizer, max_pieces: int
) -> tuple[pa.Table, Encoded]:
    """Ids of the pairs that are short enough, with their row number in the input."""
    sides = []
    for texts in (src, tgt):
        chunks = [
            pa.array(tokenizer.encode(texts[at : at + ENCODE_ROWS]), _ids(tokenizer))
            for at in range(0, len(texts), ENCODE_ROWS)
        ]
        sides.append(pa.chunked_array(chunks, _ids(tokenizer)).combine_chunks())
    lengths = [side.value_lengths().to_numpy() for side in sides]
    fits = np.maximum(*lengths) <= max_pieces
    table = pa.table(
        {"src_ids": sides[0], "tgt_ids": sides[1], "row": np.arange(len(src), dtype=np.int64)}
    ).filter(pa.array(fits))
    tokens = [int(length[fits].sum()) for length in lengths]
    return table, Encoded(table.num_rows, len(src) - table.num_rows, *tokens)


def _ids(tokenizer: Tokenizer) -> pa.DataType:
    return pa.list_(pa.uint16() if tokenizer.vocab_size <= 1 << 16 else pa.int32())


@lru_cache(maxsize=1)
def _tokenizer(folder: str) -> Tokenizer:
    """Loaded once in each worker process."""
    return Tokenizer(Path(folder))


def _row_hashes(sources: Sequence[str], lines: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row's place, the same on every machine (the SplitMix64 finish)."""
    seeds = {
        name: int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        for name in set(sources)
    }
    mixed = np.array([seeds[name] for name in sources], dtype=np.uint64)
    mixed ^= lines.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _write(table: pa.Table, path: Path) -> None:
    """One record batch, so that a reader maps each column as one piece of memory.

    A task may run twice: the name appears only once the file is whole.
    """
    path.parent.mkdir(exist_ok=True)
    partial_path = path.with_suffix(f".{uuid.uuid4().hex}")
    with pa.OSFile(str(partial_path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        no_rows = [pa.RecordBatch.from_pylist([], schema=table.schema)]
        for batch in table.combine_chunks().to_batches() or no_rows:
            writer.write_batch(batch)
    partial_path.replace(path)
