"""Training speed on two cores: ours, others of the same shape, and the bare matrix products.

    python tests/bench/training.py [DATA] [--steps 30]

DATA is the folder of Multi30k (`train.en.gz`, `train.de.gz`). Needs `transformers`.

Each contestant lives in a process of its own, with its own allocator and its own peak of memory,
and only one works at a time: for each line on its input it trains as many steps as the line says,
and answers with the seconds they took. In every round each trains on the same batches, in a random
order. Inputs are collated within the measured time. Dropout 0.1, label smoothing 0.1, fp32, fused
Adam. PyTorch's own layers drop attention weights and inner activations too, ours do not: off there.
"""

import argparse
import gzip
import io
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from itertools import chain, count, islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from measure import estimate, keep_memory, peak_memory_mib, table, where
from torch import nn
from torch.nn.functional import cross_entropy

from model.config import BOS, EOS, PAD, UNK, ModelConfig, TrainConfig
from model.trainer import MicroBatch, Step, Trainer
from model.transformer import Transformer, sinusoids
from model.workers import Workers
from pipeline.batching import Plan, TokenShards, TokenTable

DATA = Path(__file__).resolve().parents[3] / "shared/data/multi30k"
MODEL = ModelConfig(dim=256, ff_dim=1024, num_heads=4, num_encoder_layers=3, num_decoder_layers=3,
                    dropout=0.1)  # fmt: skip
VOCAB_SIZE = 8000
TOKENS = 4096
THREADS = 2
SMOOTHING = 0.1
LOSS_CHUNK = 512
WARM_UP_STEPS = 3
STEPS_PER_ROUND = 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--steps", type=int, default=30, help="timed steps of each contestant")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(CONTESTANTS[args.serve], Corpus(args.data))
    if not (args.data / "train.en.gz").exists():
        return print(f"Skipped: needs train.en.gz and train.de.gz of Multi30k in {args.data}.")
    rounds = math.ceil(args.steps / STEPS_PER_ROUND)
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.npz"
        write_tokens(args.data, tokens)
        print(where())
        report(compete(args.only, tokens, rounds), Corpus(tokens).tokens_of_rounds(rounds))
    return None


# The data.


def write_tokens(data, path):
    """Learn a vocabulary, and store the piece ids of the training pairs."""
    import sentencepiece

    sides = [read_lines(data / f"train.{language}.gz") for language in ("en", "de")]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sides[0] + sides[1]), model_writer=model, vocab_size=VOCAB_SIZE,
        pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    arrays = []
    for lines in sides:
        ids = processor.encode(lines)
        arrays += [np.array([*chain(*ids)], np.int32), np.cumsum([0, *map(len, ids)])]
    np.savez(path, *arrays)


def read_lines(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().splitlines()


class Corpus:
    """Piece ids, and the steps that all contestants take."""

    def __init__(self, path):
        with np.load(path) as arrays:
            self.shards = TokenShards([TokenTable(*arrays.values())])
        self.plan = Plan(self.shards.src_lengths, self.shards.tgt_lengths, 1, TOKENS, 1)

    def tokens_of_rounds(self, rounds):
        """Tokens of both sides in each timed round, without padding."""
        src, tgt = self.shards.src_lengths[:], self.shards.tgt_lengths[:]
        steps = self.plan.steps(after=WARM_UP_STEPS)
        taken = (islice(steps, STEPS_PER_ROUND) for _ in range(rounds))
        rows = (np.concatenate([step.micro_batches[0] for step in some]) for some in taken)
        return np.array([src[N].sum() + tgt[N].sum() for N in rows])


# The contestants: each is given the corpus and returns what trains on a planned step.


def make_ours(corpus, pieces=1):
    torch.manual_seed(1)
    config = TrainConfig(micro_batches_per_step=pieces, label_smoothing=SMOOTHING)
    trainer = Trainer(Transformer(MODEL, VOCAB_SIZE), config, seed=1, workers=Workers())

    def train_on(planned):
        parts = np.array_split(planned.micro_batches[0], pieces)
        batches = [MicroBatch(*map(torch.from_numpy, corpus.shards.collate(N))) for N in parts]
        trainer.take(Step(planned.number, 0, batches, planned.num_target_tokens))

    return train_on


def make_ours_in_two(corpus):
    return make_ours(corpus, pieces=2)


def make_marian(corpus):
    """Hugging Face's MarianMTModel, its collator, and the loss and optimizer that suit it best."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCAB_SIZE, d_model=MODEL.dim, activation_function="relu", scale_embedding=True,
        encoder_layers=MODEL.num_encoder_layers, decoder_layers=MODEL.num_decoder_layers,
        encoder_ffn_dim=MODEL.ff_dim, decoder_ffn_dim=MODEL.ff_dim,
        encoder_attention_heads=MODEL.num_heads, decoder_attention_heads=MODEL.num_heads,
        dropout=MODEL.dropout, attention_dropout=0.0, activation_dropout=0.0, use_cache=False,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, forced_eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )  # fmt: skip
    torch.manual_seed(1)
    model = MarianMTModel(config).train()
    assert model.lm_head.weight is model.model.encoder.embed_tokens.weight
    optimizer = adam(model)
    collator = marian_collator(model)

    def train_on(planned):
        pairs = (corpus.shards.tables[0].pair(row) for row in planned.micro_batches[0])
        features = [
            {"input_ids": [*src.tolist(), EOS], "labels": [*tgt.tolist(), EOS]}
            for src, tgt in pairs
        ]
        batch = collator(features)
        labels = batch.pop("labels")
        update(optimizer, model(**batch).logits.flatten(0, 1), labels.flatten(), -100)

    return train_on


def marian_collator(model):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast

    pad_only = Tokenizer(WordLevel({"<pad>": PAD}, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pad_only, pad_token="<pad>")
    return DataCollatorForSeq2Seq(tokenizer, model=model)


class PlainTransformer(nn.Module):
    """`torch.nn.Transformer` with one embedding for both sides and the output."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB_SIZE, MODEL.dim)
        nn.init.normal_(self.embedding.weight, std=MODEL.dim**-0.5)
        self.register_buffer("waves", sinusoids(MODEL.max_positions, MODEL.dim))
        self.dropout = nn.Dropout(MODEL.dropout)
        self.transformer = nn.Transformer(
            MODEL.dim, MODEL.num_heads, MODEL.num_encoder_layers, MODEL.num_decoder_layers,
            MODEL.ff_dim, MODEL.dropout, batch_first=True,
        )  # fmt: skip
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()  # the one within the feed-forward

    def forward(self, src_BS, tgt_in_BT):
        is_pad_BS = src_BS == PAD
        hides_TT = torch.ones(tgt_in_BT.shape[1], tgt_in_BT.shape[1], dtype=torch.bool).triu(1)
        hidden_BTD = self.transformer(
            self.embed(src_BS), self.embed(tgt_in_BT), tgt_mask=hides_TT, tgt_is_causal=True,
            src_key_padding_mask=is_pad_BS, memory_key_padding_mask=is_pad_BS,
        )  # fmt: skip
        return hidden_BTD @ self.embedding.weight.T

    def embed(self, ids_BN):
        scaled_BND = self.embedding(ids_BN) * math.sqrt(MODEL.dim)
        return self.dropout(scaled_BND + self.waves[: ids_BN.shape[1]])


def make_torch(corpus):
    torch.manual_seed(1)
    model = PlainTransformer().train()
    optimizer = adam(model)

    def train_on(planned):
        batch = corpus.shards.collate(planned.micro_batches[0])
        src_BS, tgt_in_BT, tgt_out_BT = map(torch.from_numpy, batch)
        update(optimizer, model(src_BS, tgt_in_BT).flatten(0, 1), tgt_out_BT.flatten(), PAD)

    return train_on


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)


def update(optimizer, logits_NV, target_N, ignored):
    loss = cross_entropy(logits_NV, target_N, ignore_index=ignored, label_smoothing=SMOOTHING)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()


def make_products(corpus):
    """Nothing but our model's matrix products, padded as its batches are."""
    operands = Operands()

    def train_on(planned):
        rows_B = planned.micro_batches[0]
        src = int(corpus.shards.src_lengths[:][rows_B].max())
        tgt = int(corpus.shards.tgt_lengths[:][rows_B].max())
        multiply(operands, len(rows_B), src, tgt)

    return train_on


def multiply(operands, rows, src, tgt):
    """All products of one training step on `rows` pairs of these padded lengths."""
    dim, ff = MODEL.dim, MODEL.ff_dim
    for _ in range(MODEL.num_encoder_layers):
        operands.linear(rows * src, dim, 3 * dim)
        operands.attention(rows, src, src)
        operands.linear(rows * src, dim, dim)
        operands.linear(rows * src, dim, ff)
        operands.linear(rows * src, ff, dim)
    for _ in range(MODEL.num_decoder_layers):
        operands.linear(rows * tgt, dim, 3 * dim)
        operands.attention(rows, tgt, tgt)
        operands.linear(rows * tgt, dim, dim)
        operands.linear(rows * tgt, dim, dim)
        operands.linear(rows * src, dim, 2 * dim)
        operands.attention(rows, tgt, src)
        operands.linear(rows * tgt, dim, dim)
        operands.linear(rows * tgt, dim, ff)
        operands.linear(rows * tgt, ff, dim)
    for start in range(0, rows * tgt, LOSS_CHUNK):
        operands.linear(min(LOSS_CHUNK, rows * tgt - start), dim, VOCAB_SIZE)


class Operands:
    """Memory that all products share: inputs, weights, results. Nothing is allocated later."""

    def __init__(self):
        size = 4 * TOKENS * MODEL.ff_dim
        self.inputs, self.weights = torch.randn(size), torch.randn(size)
        self.results, self.input_gradients, self.weight_gradients = torch.randn(3, size)

    def linear(self, rows, wide, out):
        """One layer: forward, the gradient of its input, the gradient of its weights."""
        inputs, weights = view(self.inputs, rows, wide), view(self.weights, out, wide)
        results = view(self.results, rows, out)
        torch.mm(inputs, weights.T, out=results)
        torch.mm(results, weights, out=view(self.input_gradients, rows, wide))
        torch.mm(results.T, inputs, out=view(self.weight_gradients, out, wide))

    def attention(self, rows, queries, keys):
        """All heads of one layer: scores and weighted values, and both gradients of each."""
        batch, width = rows * MODEL.num_heads, MODEL.dim // MODEL.num_heads
        q, k = view(self.inputs, batch, queries, width), view(self.weights, batch, keys, width)
        scores = view(self.results, batch, queries, keys)
        out_q = view(self.input_gradients, batch, queries, width)
        out_k = view(self.weight_gradients, batch, keys, width)
        for _ in range(2):
            torch.bmm(q, k.transpose(1, 2), out=scores)
            torch.bmm(scores, k, out=out_q)
            torch.bmm(scores.transpose(1, 2), q, out=out_k)


def view(buffer, *shape):
    return buffer[: math.prod(shape)].view(shape)


class Contestant(NamedTuple):
    make: object
    environment: dict = {}  # noqa: RUF012 - never changed
    goal: float | None = None
    """Least ratio of our speed to this one's."""


OURS = "ours"
CONTESTANTS = {
    OURS: Contestant(make_ours, keep_memory()),
    "ours, two halves": Contestant(make_ours_in_two, keep_memory()),
    "ours, untuned allocator": Contestant(make_ours),
    "Hugging Face": Contestant(make_marian, goal=1.25),
    "Hugging Face, tuned allocator": Contestant(make_marian, keep_memory(), goal=1.0),
    "torch.nn.Transformer": Contestant(make_torch),
    "torch.nn.Transformer, tuned allocator": Contestant(make_torch, keep_memory()),
    "matrix products alone": Contestant(make_products, keep_memory(), goal=0.7),
}
MEMORY_GOAL = "Hugging Face", 0.7


# The competition.


def serve(contestant, corpus):
    """Train so many steps for each line of input; answer with seconds and the peak so far."""
    torch.set_num_threads(THREADS)
    train_on = contestant.make(corpus)
    steps = corpus.plan.steps()
    for line in sys.stdin:
        planned = list(islice(steps, int(line)))
        started_at_s = perf_counter()
        for step in planned:
            train_on(step)
        answer = {"took_s": perf_counter() - started_at_s, "peak_mib": peak_memory_mib()}
        print(json.dumps(answer), flush=True)


class Process:
    """A contestant in a process of its own."""

    def __init__(self, name, tokens):
        command = [sys.executable, __file__, str(tokens), "--serve", name]
        environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)} | CONTESTANTS[name].environment
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.took_s, self.peak_mib = [], 0.0

    def train(self, steps):
        print(steps, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "a contestant ended: its error is above"
        answer = json.loads(answer)
        self.peak_mib = answer["peak_mib"]
        return answer["took_s"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def compete(names, tokens, rounds):
    """Let all train in turn; return each one's process, ended, with what it took per round."""
    processes = {}
    try:
        for name in names:
            processes[name] = Process(name, tokens)
            processes[name].train(WARM_UP_STEPS)
        shuffled = random.Random(1)
        for number in count(1):
            for name in shuffled.sample(names, len(names)):
                processes[name].took_s.append(processes[name].train(STEPS_PER_ROUND))
            if number == rounds:
                return processes
    finally:
        for process in processes.values():
            process.end()


def report(processes, tokens_of_rounds):
    ours = processes.get(OURS)
    rows = []
    for name, process in processes.items():
        took_s = np.array(process.took_s)
        ratio = estimate(took_s / ours.took_s).format(2) if ours else "-"
        rows.append([
            name, f"{np.median(STEPS_PER_ROUND / took_s):.3f}",
            estimate(tokens_of_rounds / took_s).format(), ratio, f"{process.peak_mib:,.0f}",
        ])  # fmt: skip
    head = ["contestant", "steps/s", "tokens/s", "speed of ours / its", "peak memory, MiB"]
    print(f"\n{table(head, rows)}\n")
    if ours:
        report_goals(processes, ours)


def report_goals(processes, ours):
    for name, contestant in CONTESTANTS.items():
        if contestant.goal and name in processes:
            ratio = estimate(np.array(processes[name].took_s) / ours.took_s)
            verdict = "met" if ratio.value >= contestant.goal else "NOT met"
            print(f"- speed at least {contestant.goal} x {name}: {ratio.format(2)}, {verdict}")
    rival, goal = MEMORY_GOAL
    if rival in processes:
        share = ours.peak_mib / processes[rival].peak_mib
        verdict = "met" if share <= goal else "NOT met"
        print(f"- peak memory at most {goal} x {rival}: {share:.2f}, {verdict}")


if __name__ == "__main__":
    main()
