"""The stage `tokenize`: sentences a second, beside SentencePiece's own batch encoding of the same.

    python tests/bench/tokenizing.py [--rounds 5] [--pairs 500_000] [--kind unigram]

The text is Tatoeba's training pairs (shared/data), repeated, each time with other line numbers. Each
round does all of these one after the other on the same cores:

- SentencePiece: `SentencePieceProcessor.encode(list)` of both sides, in memory, nothing written;
  one thread for one core, two threads for two;
- the stage: Parquet in; encoding, the check that decoding gives the text back, shuffling, files
  written; in this process on one core, on Ray on two. Ray's start is timed apart.

The ratio is of the rounds' pairs, with its 95 % bootstrap interval.
"""

import argparse
import gzip
import io
import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import sentencepiece

sys.path.insert(0, str(Path(__file__).parents[2]))

from measure import estimate, table, where

from model.config import BOS, EOS, PAD, UNK
from pipeline.artifact import Identity, Root
from pipeline.compute import InProcess
from pipeline.config import ComputeConfig, TokenizeConfig
from pipeline.job import Job
from pipeline.ray_compute import RayCompute
from pipeline.tables import PAIRS, ParquetShards
from pipeline.tokenize import tokenize

DATA = Path(__file__).parents[3] / "shared" / "data" / "tatoeba_de_en"
VOCAB_SIZE = 8_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=500_000)
    parser.add_argument("--kind", choices=["unigram", "bpe"], default="unigram")
    options = parser.parse_args()
    print(f"{where()}, {options.kind}, {options.pairs:,} pairs\n")
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), options)


def compare(folder, options):
    sides = [
        gzip.decompress((DATA / f"train.{language}.gz").read_bytes()).decode().split("\n")[:-1]
        for language in ("en", "de")
    ]
    root = Root(folder / "root", lambda _: None)
    vocab = root.produce(Identity("vocab", 1, {}, ()), lambda out, _: learn(sides, options, out))[0]
    repeated = [(side * (-(-options.pairs // len(side))))[: options.pairs] for side in sides]
    text = root.produce(Identity("dedup", 1, {}, ()), lambda out, _: write(repeated, out))[0]
    model = str(vocab.path("tokenizer.model"))
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    ray, start_s = started_ray(folder)
    cores = sorted(os.sched_getaffinity(0))
    took = {name: [] for name in ("one", "stage on one", "two", "stage on two")}
    warm_up(ray)
    for number in range(options.rounds):
        os.sched_setaffinity(0, cores[:1])
        took["one"].append(encode(processor, repeated, 1))
        took["stage on one"].append(stage(root, text, vocab, InProcess(), f"one {number}"))
        os.sched_setaffinity(0, cores)
        took["two"].append(encode(processor, repeated, 2))
        took["stage on two"].append(stage(root, text, vocab, ray, f"two {number}"))
    print(
        table(
            ("", "SentencePiece, sentences/s", "stage, sentences/s", "ratio"), lines(took, options)
        )
    )
    print(f"\nRay's start: {start_s:.1f} s; load at the end {os.getloadavg()[0]:.1f}")


def lines(took, options):
    for cores in ("one", "two"):
        theirs, ours = took[cores], took[f"stage on {cores}"]
        speeds = [
            estimate([2 * options.pairs / each for each in side]).format()
            for side in (theirs, ours)
        ]
        ratio = estimate([one / other for one, other in zip(theirs, ours, strict=True)])
        yield f"{cores} core{'s' * (cores == 'two')}", *speeds, ratio.format(2)


def learn(sides, options, out):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sides[0][:50_000], *sides[1][:50_000]]), model_writer=model,
        model_type=options.kind, vocab_size=VOCAB_SIZE, normalization_rule_name="identity",
        pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, minloglevel=2,
    )  # fmt: skip
    (out / "tokenizer.model").write_bytes(model.getvalue())
    (out / "tokenizer.json").write_text('{"normalise": true}\n', encoding="utf-8")
    return {}


def write(sides, out):
    rows = len(sides[0])
    names = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["tatoeba"])
    numbers = pa.array(range(1, rows + 1), pa.int64())
    columns = [*(pa.array(side, pa.string()) for side in sides), names, numbers]
    with ParquetShards(out, PAIRS) as shards:
        shards.write(pa.RecordBatch.from_arrays(columns, schema=PAIRS))
    return {"rows_kept": rows}


def started_ray(folder):
    started = time.perf_counter()
    import ray

    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
        _temp_dir=str(folder / "ray"), logging_level="error",
    )  # fmt: skip
    return RayCompute(lambda: None), time.perf_counter() - started


def warm_up(ray):
    """Its workers load what tasks need."""
    ray.map(abs, [1, 2])


def encode(processor, sides, threads):
    started = time.perf_counter()
    for side in sides:
        processor.encode(side, num_threads=threads)
    return time.perf_counter() - started


def stage(root, text, vocab, compute, name):
    """Seconds of the stage, without the digests of what it wrote, which `artifact.py` takes."""
    took_s = []

    def build(out, work):
        job = Job(
            out=out, work=work, compute=compute, settings=ComputeConfig(), files=None,
            progress=lambda *_: None, say=lambda _: None,
        )  # fmt: skip
        started = time.perf_counter()
        stats = tokenize(TokenizeConfig(), text, vocab, {}, job)
        took_s.append(time.perf_counter() - started)
        return stats

    root.produce(Identity("tokenize", 1, {"name": name}, ()), build)
    return took_s[0]


if __name__ == "__main__":
    main()
