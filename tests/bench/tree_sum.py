"""The price of the tree-ordered sum of gradients, against a plain all-reduce.

    python tests/bench/tree_sum.py [--rounds 20]

Real processes on this machine, joined by gloo, each with its share of the cores; the model of
`training.py`, 8 micro-batches a step. Compared are, in turn, in the same processes:

    tree     what a step does to gradients besides making them: additions between a worker's
             micro-batches, and `Workers.sum_in_tree`
    plain    the row of gradients is set to zero, later summed by `torch.distributed.all_reduce`

and both against whole steps. Times are those of the slowest worker in a round.
"""

import argparse
import os
import socket
from time import perf_counter

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from measure import estimate, keep_memory, table, where

from model.config import BOS, EOS, ModelConfig, TrainConfig
from model.trainer import COLUMNS, MicroBatch, Step, Trainer
from model.transformer import Transformer
from model.workers import Workers

MODEL = ModelConfig(dim=256, ff_dim=1024, num_heads=4, num_encoder_layers=3, num_decoder_layers=3)
VOCAB_SIZE = 8000
MICRO_BATCHES = 8
SENTENCE_TOKENS = 16
TOKENS = (512, 4096)
STEPS = 2
"""Whole steps, after one that does not count."""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"{where()}\n")
    os.environ.update(keep_memory())  # of the processes that are started
    rows = [cells for size in (2, 4) for cells in measure(size, rounds)]
    head = ["workers, tokens a micro-batch", "tree, ms", "of it between workers", "plain, ms",
            "tree / plain", "step, ms", "tree's share", "its excess over plain"]  # fmt: skip
    print(table(head, rows))


def measure(num_workers, rounds):
    """Start workers; return a row for each size of micro-batch."""
    answers = torch.multiprocessing.get_context("spawn").SimpleQueue()
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    arguments = (num_workers, port, rounds, answers)
    torch.multiprocessing.spawn(work, arguments, nprocs=num_workers)
    tree_s, between_s, plain_s, step_s = answers.get()
    tree, plain = np.median(tree_s), np.median(plain_s)
    for tokens in TOKENS:
        step = np.median(step_s[tokens])
        yield [
            f"{num_workers}, {tokens}", in_ms(tree_s), in_ms(between_s), in_ms(plain_s),
            estimate(tree_s / plain_s).format(2), f"{1000 * step:,.0f}",
            f"{tree / step:.1%}", f"{(tree - plain) / step:.1%}",
        ]  # fmt: skip


def in_ms(seconds):
    return estimate(1000 * seconds).format(1)


def work(rank, size, port, rounds, answers):
    """One worker. The first answers."""
    torch.set_num_threads(max(1, os.cpu_count() // size))
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=size)
    workers = Workers.here(MICRO_BATCHES)
    torch.manual_seed(1)
    config = TrainConfig(micro_batches_per_step=MICRO_BATCHES)
    trainer = Trainer(Transformer(MODEL, VOCAB_SIZE), config, 1, workers)
    step_s = {}
    for tokens in TOKENS:
        step = make_step(tokens, workers)
        step_s[tokens] = time_rounds([lambda: trainer.take(step)], STEPS)[0]  # noqa: B023
    sums_s = time_rounds(make_sums(trainer, make_step(TOKENS[0], workers)), rounds)
    if rank == 0:
        answers.put((*sums_s, step_s))
    dist.destroy_process_group()


def make_step(tokens, workers):
    """Random pieces in sentences of one length."""
    shape, share = (tokens // SENTENCE_TOKENS, SENTENCE_TOKENS), MICRO_BATCHES // workers.size
    ids = torch.randint(EOS + 1, VOCAB_SIZE, shape)
    batch = MicroBatch(ids, torch.where(torch.arange(SENTENCE_TOKENS) == 0, BOS, ids), ids)
    return Step(1, share * workers.rank, [batch] * share, MICRO_BATCHES * tokens)


def make_sums(trainer, step):
    """What is timed: the tree, the part of it between workers, and the plain sum."""
    workers, gradient_P = trainer.workers, trainer.optimizer.gradient_P
    trainer.forward = lambda _: torch.zeros(len(COLUMNS), requires_grad=True)  # costs nothing

    def tree():
        trainer._sum_gradients(step)
        workers.sum_in_tree(gradient_P)

    def plain():
        gradient_P.zero_()
        dist.all_reduce(gradient_P)

    return tree, lambda: workers.sum_in_tree(gradient_P), plain


def time_rounds(calls, rounds):
    """Seconds of each call in each round, of the slowest worker; calls in turn, once before."""
    took_s = torch.zeros(len(calls), 1 + rounds, dtype=torch.float64)
    for number in range(1 + rounds):
        for index, call in enumerate(calls):
            dist.barrier()
            started_at_s = perf_counter()
            call()
            took_s[index, number] = perf_counter() - started_at_s
    dist.all_reduce(took_s, dist.ReduceOp.MAX)
    return took_s[:, 1:].numpy()


if __name__ == "__main__":
    main()
