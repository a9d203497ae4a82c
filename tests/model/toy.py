"""A small training task that the tests of this folder share, and processes to run it in."""

import multiprocessing

import torch

from model.config import BOS, EOS, PAD, ModelConfig, TrainConfig
from model.trainer import MicroBatch, Step
from model.transformer import Transformer
from model.workers import Workers

VOCABULARY = 40
MODEL = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    dropout=0.2, max_positions=16)  # fmt: skip
TRAIN = TrainConfig(max_steps=6, tokens_per_micro_batch=64, micro_batches_per_step=4, warmup_steps=4,
                    checkpoint_every_steps=2, dev_every_steps=3, keep_checkpoints=2)  # fmt: skip


ALONE = Workers()


def make_model(config=MODEL):
    torch.manual_seed(3)
    return Transformer(config, VOCABULARY)


def make_micro_batch(seed, num_rows=3):
    random = torch.Generator().manual_seed(seed)

    def pieces():
        return [
            torch.randint(4, VOCABULARY, (size,), generator=random)
            for size in torch.randint(1, 7, (num_rows,), generator=random)
        ]

    def pad(rows):
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    def mark(token):
        return torch.tensor([token])

    src, tgt = pieces(), pieces()
    return MicroBatch(
        pad([torch.cat([row, mark(EOS)]) for row in src]),
        pad([torch.cat([mark(BOS), row]) for row in tgt]),
        pad([torch.cat([row, mark(EOS)]) for row in tgt]),
    )


def make_step(number, workers=ALONE, size=4):
    whole = [make_micro_batch(number * 100 + index) for index in range(size)]
    num_target_tokens = sum(int((batch.tgt_out_BT != PAD).sum()) for batch in whole)
    share = size // workers.size
    first = workers.rank * share
    return Step(number, first, whole[first : first + share], num_target_tokens)


def forkserver():
    """Start processes as children of one that has torch loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["model.fit"])
    return context


def run_processes(processes, target, all_arguments):
    children = [processes.Process(target=target, args=arguments) for arguments in all_arguments]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    return [child.exitcode for child in children]


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )
