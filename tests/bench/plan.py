"""The training plan at size: seconds, tokens a second, memory, padding; one core.

    python tests/bench/plan.py [--rows 40_000_000] [--simulated 1_000_000_000]

Writes token shards like those of `tokenize` into a temporary folder (115 bytes a row), and plans,
reads and pads an epoch of them; then plans some pools of many more rows, whose lengths are drawn
when asked for. Each line of the table is measured in a fresh process.

Lengths are like those of WMT English to German: log-normal, 28 source tokens on average with the
end mark, sigma 0.55; target to source 1.03 to 1, sigma 0.19. That is what newstest2013 and 2014
have in pieces of a vocabulary of 14,000 learnt on themselves.

Tokens are of both sides, end marks included, without padding. Memory is sampled every 10 ms from
Linux: *anonymous* is what the process holds, its imports included; *file-backed* is what is mapped
from shards and libraries, and can be dropped by the system at any time.
"""

import argparse
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
MULTI30K = ROOT / "shared" / "data" / "multi30k"

TOKENS_PER_MICRO_BATCH = 4096
MICRO_BATCHES_PER_STEP = 8
ROWS_PER_SHARD = 65_536
RESUME_AFTER = 100_000
MEASURED_POOLS = 300
COLUMNS = ("what", "rows", "seconds", "M rows/s", "M tokens/s", "anonymous MiB: at start, peak",
           "file-backed MiB, peak", "padding: src, tgt")  # fmt: skip


class Memory:
    """Peaks of this process's resident memory, in MiB."""

    def __enter__(self):
        self.start = self.now()
        self.peak = self.start
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.sample()

    def watch(self):
        while not self.over.wait(0.01):
            self.sample()

    def sample(self):
        self.peak = tuple(map(max, self.peak, self.now()))

    @staticmethod
    def now():
        status = Path("/proc/self/status").read_text()
        return tuple(int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024
                     for name in ("RssAnon", "RssFile"))  # fmt: skip


@dataclass(frozen=True)
class Simulated:
    """Lengths of any number of rows: some that were drawn, again and again."""

    drawn_twice: np.ndarray
    num_rows: int

    def __len__(self):
        return self.num_rows

    def __getitem__(self, rows):
        start, stop, _ = rows.indices(self.num_rows)
        first = start % (len(self.drawn_twice) // 2)
        return self.drawn_twice[first : first + stop - start]


def draw_lengths(num_rows, random):
    """Source and target tokens of each row, end mark included."""
    src = np.clip(random.lognormal(3.18, 0.55, num_rows).round(), 2, 251)
    tgt = np.clip((src * random.lognormal(0.03, 0.19, num_rows)).round(), 2, 251)
    return src.astype(np.int32), tgt.astype(np.int32)


def write_shards(folder, num_rows):
    random = np.random.default_rng(0)
    for number, start in enumerate(range(0, num_rows, ROWS_PER_SHARD)):
        sides = draw_lengths(min(ROWS_PER_SHARD, num_rows - start), random)
        table = pa.table({f"{side}_ids": draw_pieces(lengths - 1, random)
                          for side, lengths in zip(("src", "tgt"), sides, strict=True)})  # fmt: skip
        path = folder / f"part-{number:05d}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


def draw_pieces(num_pieces, random):
    offsets = np.concatenate([[0], np.cumsum(num_pieces)]).astype(np.int32)
    ids = np.frombuffer(random.bytes(2 * int(offsets[-1])), np.uint16)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))


def plan_of(src, tgt):
    from pipeline.batching import Plan

    return Plan(src, tgt, 1, TOKENS_PER_MICRO_BATCH, MICRO_BATCHES_PER_STEP)


def open_shards(folder):
    from pipeline.batching import TokenShards
    from pipeline.train import load_tokens

    return TokenShards([load_tokens(path) for path in sorted(folder.glob("*.arrow"))])


def num_tokens(shards):
    """Of both sides, from the ends of the tables: what is measured shall not read the lengths."""
    pieces = sum(int(offsets[-1]) for lengths in (shards.src_lengths, shards.tgt_lengths)
                 for offsets in lengths.offsets)  # fmt: skip
    return pieces + 2 * len(shards)


def padding(micro_batches, *sides):
    """Share of padded cells of each side."""
    cells = [sum(len(rows) * int(side[rows].max()) for rows in micro_batches) for side in sides]
    return [1 - int(side.sum()) / all_cells for side, all_cells in zip(sides, cells, strict=True)]


def measure_start(folder):
    """Open the shards and find the longest rows."""
    import pipeline.train  # noqa: F401 - its import is not what is measured

    with Memory() as memory:
        start = time.perf_counter()
        shards = open_shards(folder)
        plan_of(shards.src_lengths, shards.tgt_lengths)
        took_s = time.perf_counter() - start
    return row("open shards, find the longest rows", len(shards), took_s, memory)


def measure_plan(folder):
    shards = open_shards(folder)
    with Memory() as memory:
        start = time.perf_counter()
        plan = plan_of(shards.src_lengths, shards.tgt_lengths)
        num_planned = sum(map(len, plan.micro_batches(0)))
        took_s = time.perf_counter() - start
    assert num_planned == len(shards)
    return row("plan an epoch", len(shards), took_s, memory, tokens=num_tokens(shards))


def measure_resume(folder):
    shards = open_shards(folder)
    plan = plan_of(shards.src_lengths, shards.tgt_lengths)
    with Memory() as memory:
        start = time.perf_counter()
        step = next(plan.steps(RESUME_AFTER))
        took_s = time.perf_counter() - start
    num_rows = step.epoch * len(shards)
    return row(f"find step {RESUME_AFTER:,}: whole epochs before it", num_rows, took_s, memory)


def measure_cold(folder):
    for path in folder.glob("*.arrow"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return measure_batches(folder, "the same, shards not in memory before")


def measure_batches(folder, what="plan, read and pad an epoch"):
    shards = open_shards(folder)
    cells = np.zeros(2, np.int64)
    with Memory() as memory:
        start = time.perf_counter()
        for rows in plan_of(shards.src_lengths, shards.tgt_lengths).micro_batches(0):
            batch = shards.collate(rows)
            cells += batch.src_BS.size, batch.tgt_out_BT.size
        took_s = time.perf_counter() - start
    pieces = [sum(int(offsets[-1]) for offsets in lengths.offsets) + len(shards)
              for lengths in (shards.src_lengths, shards.tgt_lengths)]  # fmt: skip
    share = (1 - pieces / cells).tolist()
    return row(what, len(shards), took_s, memory, tokens=num_tokens(shards), share=share)


def measure_array(num_rows):
    src, tgt = draw_lengths(num_rows, np.random.default_rng(0))
    return measure_lengths("plan an epoch, lengths in memory", src, tgt)


def measure_multi30k():
    import sentencepiece

    texts = [gzip.decompress((MULTI30K / f"train.{side}.gz").read_bytes()).decode().splitlines()
             for side in ("en", "de")]  # fmt: skip
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*texts[0], *texts[1]]), model_writer=model, vocab_size=8000,
        num_threads=1, minloglevel=2,
    )  # fmt: skip
    encode = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode
    src, tgt = (np.array([len(pieces) + 1 for pieces in encode(side)], np.int32) for side in texts)
    return measure_lengths("Multi30k, a vocabulary of 8,000", src, tgt)


def measure_lengths(what, src, tgt):
    with Memory() as memory:
        start = time.perf_counter()
        micro_batches = list(plan_of(src, tgt).micro_batches(0))
        took_s = time.perf_counter() - start
    share = padding(micro_batches, src, tgt)
    return row(what, len(src), took_s, memory, tokens=int(src.sum() + tgt.sum()), share=share)


def measure_simulated(num_rows):
    drawn = draw_lengths(1_000_003, np.random.default_rng(0))
    sides = [Simulated(np.tile(lengths, 2), num_rows) for lengths in drawn]
    with Memory() as memory:
        start = time.perf_counter()
        plan = plan_of(*sides)
        longest_s = time.perf_counter() - start
        rows_per_pool = plan.rows_per_block * plan.blocks_per_pool
        start = time.perf_counter()
        planned = 0
        for rows in plan.micro_batches(0):
            planned += len(rows)
            if planned >= min(MEASURED_POOLS * rows_per_pool, num_rows):
                break
        took_s = time.perf_counter() - start
    whole_s = took_s * num_rows / planned
    what = f"simulated: the first {planned:,} rows of {num_rows:,}"
    first = row(what, planned, took_s, memory)
    rest = [f"simulated: all rows, extrapolated; finding the longest took {longest_s:.1f} s of it",
            f"{num_rows:,}", f"{longest_s + whole_s:.0f}", "", "", "", "", ""]  # fmt: skip
    return [*first, rest]


def row(what, num_rows, took_s, memory, *, tokens=None, share=None):
    return [[
        what, f"{num_rows:,}", f"{took_s:.2f}", f"{num_rows / took_s / 1e6:.2f}",
        f"{tokens / took_s / 1e6:.1f}" if tokens else "",
        f"{memory.start[0]:.0f}, {memory.peak[0]:.0f}", f"{memory.peak[1]:.0f}",
        ", ".join(f"{side:.1%}" for side in share) if share else "",
    ]]  # fmt: skip


def in_fresh_process(call):
    program = f"import json, sys; from pathlib import Path; sys.path[:0] = [{str(ROOT)!r}, " \
              f"{str(Path(__file__).parent)!r}]; import plan; print(json.dumps(plan.{call}))"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    for cells in json.loads(done.stdout):
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--simulated", type=int, default=1_000_000_000)
    asked = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f}\n")
    print("| " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * (len(COLUMNS) - 1))
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder), asked.rows)
        for name in ("start", "plan", "batches", "cold", "resume"):
            in_fresh_process(f"measure_{name}(Path({folder!r}))")
    in_fresh_process(f"measure_simulated({asked.simulated})")
    in_fresh_process("measure_array(1_000_000)")
    if MULTI30K.is_dir():
        in_fresh_process("measure_multi30k()")


if __name__ == "__main__":
    main()
