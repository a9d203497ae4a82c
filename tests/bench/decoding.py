"""Translation speed on two cores: ours, Hugging Face's generate, CTranslate2.

    python tests/bench/decoding.py BUNDLE [DATA] [--rounds 15]

BUNDLE is a folder that `average` made, DATA that of Multi30k (`test_2016_flickr.en.gz`, `.de.gz`).
Needs `transformers` and `ctranslate2`.

All translate the same piece ids with the same weights: beam 4, alpha 0.6, fp32. Each lives in a
process of its own, and only one works at a time; in every round each translates the whole text, in
a random order. Reading the model and cutting text into pieces is not measured; sorting, batches
and padding are. Each has the batch size that suits it best.

What differs: the others divide by length^alpha, we by ((5 + length) / 6)^alpha. All stop a sentence
when as many hypotheses as beams have ended.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from foreign import pack, to_hugging_face
from measure import estimate, peak_memory_mib, table, where

from model.config import BOS, EOS, PAD, SearchConfig
from model.search import beam_search
from model.transformer import pad_sequences
from pipeline.translating.bundle import load_bundle
from pipeline.translating.decoding import Batch, TorchEngine
from pipeline.translating.export import token_names, write_weights

DATA = Path(__file__).resolve().parents[3] / "shared/data/multi30k"
TEST_SET = "test_2016_flickr"
THREADS = 2
SEARCH = SearchConfig()
WARM_UP_SENTENCES = 100


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sentences", type=int, help="translate only so many")
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--tokens", type=int, help="source tokens per batch, for all")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    bundle = load_bundle(args.bundle)
    texts = read_lines(args.data / f"{TEST_SET}.{bundle.src}.gz")[: args.sentences]
    if args.serve:
        contestant = CONTESTANTS[args.serve]
        sources = [[*ids, EOS] for ids in bundle.tokenizer.encode(texts)]
        torch.set_num_threads(contestant.threads)
        return serve(contestant.make(bundle, args.tokens or contestant.tokens), sources)
    print(where())
    processes = compete(args.only, args.rounds)
    references = read_lines(args.data / f"{TEST_SET}.{bundle.tgt}.gz")[: args.sentences]
    report(processes, bundle, references)
    return None


def read_lines(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().splitlines()


# The contestants: each is given a bundle and tokens per batch, and returns what translates ids.


def make_ours(bundle, tokens):
    def translate(sources):
        found = [()] * len(sources)
        for rows in batches(sources, tokens):
            search(bundle.model, sources, rows, found)
        return found

    return translate


def search(model, sources, rows, found):
    batch = pad_sequences([sources[row] for row in rows])
    for row, hypotheses in zip(rows, beam_search(model, batch, SEARCH), strict=True):
        found[row] = hypotheses[0].ids


def make_ours_in_threads(bundle, tokens):
    def translate(sources):
        found = [()] * len(sources)
        with TorchEngine(bundle.model, THREADS) as engine:
            begun = [
                (rows, engine.submit(Batch([sources[row][:-1] for row in rows], rows), SEARCH))
                for rows in batches(sources, tokens)
            ]
            for rows, wait in begun:
                for row, hypotheses in zip(rows, wait(), strict=True):
                    found[row] = hypotheses[0].ids
        return found

    return translate


def make_ours_packed(bundle, tokens):
    pack(bundle.model)
    return make_ours(bundle, tokens)


def make_ours_packed_in_threads(bundle, tokens):
    pack(bundle.model)
    return make_ours_in_threads(bundle, tokens)


def make_hugging_face(bundle, tokens):
    model = to_hugging_face(bundle)

    def translate(sources):
        found = [()] * len(sources)
        for rows in batches(sources, tokens):
            batch = pad_sequences([sources[row] for row in rows])
            with torch.inference_mode():
                ids = model.generate(
                    batch, attention_mask=batch != PAD, num_beams=SEARCH.beam_size, do_sample=False,
                    length_penalty=SEARCH.length_penalty, early_stopping=True,
                    max_new_tokens=batch.shape[1] + SEARCH.max_extra_tokens,
                )  # fmt: skip
            for row, some in zip(rows, ids.tolist(), strict=True):
                found[row] = strip(some)
        return found

    return translate


def make_ctranslate2(bundle, tokens, replicas=1):
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        write_weights(bundle.model, Path(folder))
        translator = ctranslate2.Translator(
            folder, compute_type="float32", inter_threads=replicas,
            intra_threads=THREADS // replicas,
        )  # fmt: skip
    names = token_names(bundle.model.vocab_size)
    id_of = {name: number for number, name in enumerate(names)}

    def translate(sources):
        found = translator.translate_batch(
            [[names[token] for token in ids] for ids in sources], beam_size=SEARCH.beam_size,
            length_penalty=SEARCH.length_penalty, max_batch_size=tokens, batch_type="tokens",
        )  # fmt: skip
        return [strip([id_of[name] for name in result.hypotheses[0]]) for result in found]

    return translate


def make_two_ctranslate2(bundle, tokens):
    return make_ctranslate2(bundle, tokens, replicas=THREADS)


def batches(sources, tokens):
    """Rows, longest first, cut so that rows x longest stays in the budget."""
    order = sorted(range(len(sources)), key=lambda row: (-len(sources[row]), row))
    while order:
        count = max(1, tokens // len(sources[order[0]]))
        yield order[:count]
        order = order[count:]


def strip(ids):
    """Without padding, begin, and what comes from the end on."""
    ids = ids[1:] if ids[:1] == [BOS] else ids
    return tuple(ids[: ids.index(EOS)] if EOS in ids else ids)


class Contestant(NamedTuple):
    make: object
    tokens: int
    """Source tokens per batch."""
    threads: int = THREADS
    goal: float | None = None
    """Least ratio of our speed to this one's."""


OURS = "ours"
CONTESTANTS = {
    OURS: Contestant(make_ours, 2000),
    "ours, two threads of one": Contestant(make_ours_in_threads, 2000, threads=1),
    "ours, packed weights": Contestant(make_ours_packed, 2000),
    "ours, packed weights, two threads of one": Contestant(
        make_ours_packed_in_threads, 2000, threads=1
    ),
    "Hugging Face": Contestant(make_hugging_face, 2000, goal=1.7),
    "CTranslate2": Contestant(make_ctranslate2, 2000, goal=0.95),
    "CTranslate2, two replicas": Contestant(make_two_ctranslate2, 2000, goal=0.65),
}


# The competition.


def serve(translate, sources):
    """For each line of input translate; answer with seconds, memory and, when asked, the ids."""
    translate(sources[:WARM_UP_SENTENCES])
    for line in sys.stdin:
        started_at_s = perf_counter()
        found = translate(sources)
        answer = {"took_s": perf_counter() - started_at_s, "peak_mib": peak_memory_mib()}
        if json.loads(line):
            answer["found"] = found
        print(json.dumps(answer), flush=True)


class Process:
    """A contestant in a process of its own."""

    def __init__(self, name):
        command = [sys.executable, *sys.argv, "--serve", name]
        environment = os.environ | {"OMP_NUM_THREADS": str(CONTESTANTS[name].threads)}
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.took_s, self.peak_mib, self.found = [], 0.0, None

    def translate(self, *, keep):
        print(json.dumps(keep), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, "a contestant ended: its error is above"
        answer = json.loads(answer)
        self.peak_mib = answer["peak_mib"]
        self.found = answer.get("found", self.found)
        return answer["took_s"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def compete(names, rounds):
    """Let all translate in turn; return each one's process, ended, with what it took per round."""
    processes = {}
    try:
        for name in names:
            processes[name] = Process(name)
            processes[name].translate(keep=True)
        shuffled = random.Random(1)
        for _ in range(rounds):
            for name in shuffled.sample(names, len(names)):
                processes[name].took_s.append(processes[name].translate(keep=False))
    finally:
        for process in processes.values():
            process.end()
    return processes


def report(processes, bundle, references):
    from sacrebleu import corpus_bleu

    ours = processes.get(OURS)
    rows = []
    for name, process in processes.items():
        took_s = np.array(process.took_s)
        texts = bundle.tokenizer.decode(process.found)
        same = same_share(process.found, ours.found) if ours else "-"
        rows.append([
            name, estimate(len(references) / took_s).format(1),
            estimate(took_s / ours.took_s).format(2) if ours else "-",
            CONTESTANTS[name].goal or "-", f"{corpus_bleu(texts, [references]).score:.2f}", same,
            f"{process.peak_mib:,.0f}",
        ])  # fmt: skip
    head = [
        "",
        "sentences/s",
        "ours is so many times as fast",
        "goal",
        "BLEU",
        "same as ours",
        "peak MiB",
    ]
    print(table(head, rows))


def same_share(found, other):
    return f"{np.mean([left == right for left, right in zip(found, other, strict=True)]):.1%}"


if __name__ == "__main__":
    main()
