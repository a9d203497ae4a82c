"""Training speed on one GPU: the paper's base and big in bf16, with and without torch.compile.

    PYTHONPATH=. python tests/bench/gpu.py
    PYTHONPATH=. python tests/bench/gpu.py --device cpu --tiny    does it run? In seconds

Needs torch and numpy, and no other package of the project's. Pairs are random pieces with lengths
like those of WMT 2014 English-German (log-normal, about 30 pieces on average). Steps are planned,
collated ahead in a thread, moved and trained on as in a run, each of about 25,600 source and as many
target tokens: as one micro-batch, and cut in eight of 3,200 tokens, as in the recipes, so that up
to 8 GPUs can share it. Which is faster on one GPU, and whether one has the memory, it measures.

Utilisation is the operations of all matrix products, forward and backward, without padding, divided
by seconds x the GPU's peak. The operations are those of `model/flops.py`: 6 x weights x tokens, and
those of attention.
"""

import argparse
import gc
import platform
from itertools import islice, product
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from measure import commit, estimate, peak_memory_mib, table_head, table_row

from model.config import BASE, BIG, ModelConfig, TrainConfig
from model.trainer import COLUMNS, MicroBatch, Step, Trainer
from model.transformer import Transformer
from model.workers import Workers
from pipeline.batching import Plan, TokenShards, TokenTable
from pipeline.prefetch import prefetch

PEAK_FLOPS_PER_S = 989e12
"""Of an H200: dense products in bf16, from its data sheet."""
MAX_S = 390
"""No measurement starts later; the last may take another minute, most of it to compile."""
STEPS_AHEAD = 2
MEAN_LOG_LENGTH, STD_LOG_LENGTH, MAX_LENGTH = 3.25, 0.55, 150
HEAD = ["model, code, micro-batches", "tokens/s", "ms a step", "utilisation", "peak GiB",
        "first step, s"]  # fmt: skip


class Size(NamedTuple):
    """How much is measured."""

    models: dict[str, ModelConfig]
    vocab_size: int
    tokens_per_step: int
    num_rows: int
    warm_up_steps: int
    steps: int
    compiles: tuple[bool, ...]
    micro_batches: tuple[int, ...] = (1, 8)


FULL = Size({"base": BASE, "big": BIG}, 37_000, 25_600, 400_000, 10, 40, (False, True))
TINY = Size(
    {"tiny": ModelConfig(32, 64, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)},
    vocab_size=100, tokens_per_step=1_280, num_rows=500, warm_up_steps=1, steps=2,
    compiles=(False,),
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model, without torch.compile")
    args = parser.parse_args()
    device, size = torch.device(args.device), TINY if args.tiny else FULL
    print(f"commit {commit()}, torch {torch.__version__}, {describe(device)}\n", flush=True)
    print(table_head(HEAD), flush=True)
    corpus, started_at_s, left_out = make_corpus(size), perf_counter(), []
    cases = product(size.models.items(), size.compiles, size.micro_batches)
    for (name, model), is_compiled, micro_batches in cases:
        label = f"{name}, {'compiled' if is_compiled else 'eager'}, {micro_batches}"
        if perf_counter() - started_at_s > MAX_S:
            left_out.append(label)
            continue
        config = make_config(size, micro_batches, is_compiled)
        print(table_row([label, *measure(model, config, size, corpus, device)]), flush=True)
    print(f"\n{perf_counter() - started_at_s:.0f} s in all. Left out: {left_out or 'nothing'}.")


def describe(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def make_corpus(size):
    """Random pieces. The target is as long as the source, give or take a fifth."""
    random = np.random.default_rng(1)
    src_N = random.lognormal(MEAN_LOG_LENGTH, STD_LOG_LENGTH, size.num_rows)
    tgt_N = src_N * random.lognormal(0.0, 0.2, size.num_rows)
    sides = []
    for length_N in (src_N, tgt_N):
        offsets = np.cumsum([0, *np.clip(length_N, 1, MAX_LENGTH).astype(np.int64)])
        sides += [random.integers(4, size.vocab_size, offsets[-1], dtype=np.int32), offsets]
    return TokenShards([TokenTable(*sides)])


def make_config(size, micro_batches, is_compiled):
    return TrainConfig(
        tokens_per_micro_batch=size.tokens_per_step // micro_batches,
        micro_batches_per_step=micro_batches,
        precision="bf16",
        compile=is_compiled,
    )


def measure(model, config, size, corpus, device):
    """Train some steps; return the figures of a row, as text."""
    forget_the_one_before(device)
    torch.manual_seed(1)
    trainer = Trainer(Transformer(model, size.vocab_size).to(device), config, 1, Workers())
    steps = prefetch(lambda: make_steps(trainer, corpus), STEPS_AHEAD)
    first_s = sum(take(trainer, step)[0] for step in islice(steps, 1))
    for step in islice(steps, size.warm_up_steps - 1):
        take(trainer, step)
    took_s, tokens, flops = np.array([take(trainer, step) for step in islice(steps, size.steps)]).T
    steps.close()
    utilisation = flops.sum() / took_s.sum() / PEAK_FLOPS_PER_S
    return [
        estimate(tokens / took_s).format(),
        estimate(1000 * took_s).format(1),
        f"{utilisation:.1%}",
        f"{peak_gib(device):.1f}",
        f"{first_s:.1f}",
    ]


def forget_the_one_before(device):
    """Its code, memory and peak, so that no figure depends on the order."""
    torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def make_steps(trainer, corpus):
    """What `pipeline.train` makes, without its imports."""
    config, device = trainer.config, trainer.optimizer.values_P.device
    plan = Plan(corpus.src_lengths, corpus.tgt_lengths, 1, config.tokens_per_micro_batch,
                config.micro_batches_per_step)  # fmt: skip
    for planned in plan.steps():
        batches = [map(torch.from_numpy, corpus.collate(rows)) for rows in planned.micro_batches]
        if device.type == "cuda":
            batches = [[ids.pin_memory() for ids in batch] for batch in batches]
        micro_batches = [MicroBatch(*batch) for batch in batches]
        yield Step(planned.number, 0, micro_batches, planned.num_target_tokens)


def take(trainer, step):
    """One step: its seconds, tokens and operations."""
    started_at_s = perf_counter()
    update = trainer.take(step)
    sums = dict(zip(COLUMNS, update.sums.sum(0).tolist(), strict=True))
    if trainer.optimizer.values_P.is_cuda:  # the update of the weights may not be done yet
        torch.cuda.synchronize()
    assert not update.skipped
    return perf_counter() - started_at_s, sums["num_tokens"], sums["flops"]


def peak_gib(device):
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    return peak_memory_mib() / 2**10


if __name__ == "__main__":
    main()
