"""The data stages on more and more rows: seconds and memory of clean, dedup, vocab and tokenize.

    python tests/bench/scale.py [--rows 1_000_000 2_000_000 …] [--plot scale.png] [--cpus 2]

Generates rows into a temporary folder, and takes them through the stages with their defaults, but
for the vocabulary, and for the identification of languages (`--language`): that is nine tenths of
cleaning's time, and looks at each row alone. Each stage runs in a fresh process: what it maps goes to a local Ray of `--cpus`
CPUs (or `--in-process`), which has started before the clock does. Seconds include all that makes an
artifact: hashing its files and forcing them to the disk; CPU seconds those of all its processes,
which other work on the machine does not change by much.

Memory is anonymous: what processes hold, not what they map from files, which the system can drop.
It is sampled every 50 ms over the stage's process and all that it started: *all* is the peak of
their sum, *idle* that sum before the stage begins (the imports, and Ray's own services and idle
workers where there are any), *largest* the peak of one process.

Rows are words of the built-in corpus and compounds of them, 5 to 40 a side, with a number that both
sides have; the first million is the same whatever comes after it. Of 100 rows 2 are an earlier one
of the same batch, 1 is one in capitals, 1 is of the first batch of all, 1 has a side of the test
set, and 2 are too uneven for `clean`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measure import table_head, table_row, where

ROWS = (1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000)
BATCH_ROWS = 50_000
TEST_ROWS = 2_000
COMPOUNDS = 30_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
COUNTED = ("rows_in", "rows_kept")
STAGES = ("clean", "dedup", "vocab", "tokenize")
HEAD = ("rows", "stage", "rows in", "kept", "s", "CPU s", "rows/CPU s", "MiB, all", "MiB, largest")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--stages", nargs="+", default=STAGES, choices=STAGES)
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--vocab-sentences", type=int, default=200_000)
    parser.add_argument("--cpus", type=int, default=os.cpu_count())
    parser.add_argument("--in-process", action="store_true")
    parser.add_argument("--language", action="store_true", help="identify languages in clean")
    parser.add_argument("--folder", type=Path, help="where there is room: about 1.5 kB a row")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(options)
    else:
        compare(options)


def compare(options):
    print(where(), flush=True)
    print(f"{table_head(HEAD)}", flush=True)
    measured = []
    for rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            start(options, rows, folder, "download")
            for stage in STAGES[: max(map(STAGES.index, options.stages)) + 1]:
                found = {"rows": rows, "stage": stage, **start(options, rows, folder, stage)}
                if stage in options.stages:
                    measured.append(found)
                    print(table_row(cells(found)), flush=True)
    for stage in options.stages:
        print(summary(stage, [found for found in measured if found["stage"] == stage]))
    if options.plot:
        plot(measured, options.plot)


def cells(found):
    speed = found["rows_in"] / found["cpu_s"]
    return (
        f"{found['rows']:,}",
        found["stage"],
        f"{found['rows_in']:,}",
        f"{found['rows_kept']:,}",
        f"{found['seconds']:,.1f}",
        f"{found['cpu_s']:,.1f}",
        f"{speed:,.0f}",
        f"{found['all']:,.0f} (idle {found['idle']:,.0f})",
        f"{found['largest']:,.0f}",
    )


def summary(stage, found):
    """How time and memory grow from the smallest to the largest number of rows."""
    first, last = found[0], found[-1]
    rows, cpu_s = (last[key] / first[key] for key in ("rows", "cpu_s"))
    memory = {key: last[key] / first[key] for key in ("all", "largest")}
    return (
        f"{stage}: {rows:.1f} x the rows take {cpu_s:.2f} x the CPU time, {memory['all']:.2f} x the "
        f"memory of all processes, {memory['largest']:.2f} x that of the largest"
    )


def start(options, rows, folder, stage):
    """Run one stage in a process of its own, and watch it."""
    command = [sys.executable, __file__, "--stage", stage, "--rows", str(rows), "--folder", folder]
    for name in ("vocab_size", "vocab_sentences", "cpus"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    command += ["--in-process"] * options.in_process + ["--language"] * options.language
    path = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        watch = Watch(process.pid)
        ready = process.stdout.readline()
        watch.begin()
        said = process.stdout.read()
        watch.end()
    if process.returncode or ready != "ready\n":
        raise SystemExit(f"{stage} of {rows} rows has failed")
    seen = {key: getattr(watch, key) for key in ("all", "largest", "idle", "cpu_s")}
    return {**json.loads(said), **seen}


class Watch:
    """A process and all that it starts: peaks of their anonymous memory in MiB, and CPU seconds."""

    def __init__(self, pid):
        self.pid = pid
        self.all = self.largest = self.idle = self.cpu_s = self.cpu_s_before = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def begin(self):
        self.idle = sum(held for held, _ in used_by(self.pid))
        self.cpu_s_before = sum(cpu_s for _, cpu_s in used_by(self.pid))
        self.thread.start()

    def end(self):
        self.over.set()
        self.thread.join()

    def watch(self):
        while not self.over.wait(0.05):
            used = used_by(self.pid)
            held = [each for each, _ in used]
            self.all, self.largest = max(self.all, sum(held)), max(self.largest, *held, 0)
            cpu_s = sum(each for _, each in used) - self.cpu_s_before
            self.cpu_s = max(self.cpu_s, cpu_s)


def used_by(pid):
    """Anonymous memory in MiB and CPU seconds so far, of a process and each of its descendants."""
    children, used = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                lines = (folder / "status").read_text(errors="replace").split("\n")
                times = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            status = dict(line.partition(":")[::2] for line in lines)
            children.setdefault(int(status["PPid"]), []).append(int(folder.name))
            held = int(status.get("RssAnon", "0 kB").split()[0]) / 1024
            used[int(folder.name)] = held, sum(map(int, times[11:15])) / TICKS_PER_S
    found, rest = [], [pid]
    while rest:
        found.append(rest.pop())
        rest += children.get(found[-1], [])
    return [used.get(each, (0, 0)) for each in found]


def run_stage(options):
    """In the process of one stage: get ready, say so, run it, and say what it counted."""
    from pipeline.artifact import Identity, Root

    [rows] = options.rows
    root = Root(options.folder, print)
    identities = {
        name: Identity(name, 1, {"rows": rows}, (), aside=("rejected/*",))
        for name in ("download", "test", *STAGES)
    }
    made = {name: root.find(identity) for name, identity in identities.items()}
    compute = place_to_compute(options)
    build = stage_of(options, rows, made)
    print("ready", flush=True)
    started = time.perf_counter()
    artifact, _ = root.produce(
        identities[options.stage], lambda out, work: build(workplace(out, work, compute))
    )
    seconds = time.perf_counter() - started
    if options.stage == "download":
        root.produce(identities["test"], lambda out, _: write_corpus(out, test_pairs()))
    counted = {key: artifact.stats.get(key, artifact.stats.get("rows")) for key in COUNTED}
    print(json.dumps({"seconds": seconds, **counted}), flush=True)


def place_to_compute(options):
    """Ray with its workers up, as a run of a recipe has it, for stages that share out their work."""
    from pipeline.compute import InProcess

    if options.in_process or options.stage not in {"clean", "dedup", "tokenize"}:
        return InProcess()
    import ray

    from pipeline.ray_compute import RayCompute

    store = 200 << 20
    ray.init(
        address="local",
        num_cpus=options.cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=store,
    )
    compute = RayCompute(lambda: None)
    compute.map(time.sleep, [1] * options.cpus)  # so that all workers are there
    return compute


def workplace(out, work, compute):
    from pipeline.config import ComputeConfig
    from pipeline.job import Job

    silent = {"progress": lambda *_: None, "say": lambda _: None}
    return Job(out=out, work=work, compute=compute, settings=ComputeConfig(), files=None, **silent)


def stage_of(options, rows, made):
    """What makes a stage's artifact, given a workplace."""
    from pipeline.clean import clean
    from pipeline.config import CleanConfig, DedupConfig, TokenizeConfig, VocabConfig
    from pipeline.dedup import dedup
    from pipeline.tokenize import tokenize
    from pipeline.vocab import vocab

    cleaning = CleanConfig(rules_off=[] if options.language else ["language"])
    pieces = VocabConfig(size=options.vocab_size, max_sentences=options.vocab_sentences)
    test = {"test": made["test"]}
    stages = {
        "download": lambda job: write_corpus(job.out, batches(rows)),
        "clean": lambda job: clean(cleaning, ("en", "de"), "made", made["download"], job),
        "dedup": lambda job: dedup(DedupConfig(), [made["clean"]], test, job),
        "vocab": lambda job: vocab(pieces, True, made["dedup"], job),
        "tokenize": lambda job: tokenize(TokenizeConfig(), made["dedup"], made["vocab"], test, job),
    }
    return stages[options.stage]


def write_corpus(out, batches):
    """Text as `download` stores it."""
    rows = 0
    with (out / "src").open("wb") as src, (out / "tgt").open("wb") as tgt:
        for sides in batches:
            rows += len(sides[0])
            for file, texts in zip((src, tgt), sides, strict=True):
                lines = pc.binary_join_element_wise(texts, "", "\n")
                file.write(lines.buffers()[2])
    return {"rows": rows}


def batches(rows):
    """Both sides of so many rows, some at a time."""
    first = draw_batch(0)
    test_src, test_tgt = next(test_pairs())
    for number in range(-(-rows // BATCH_ROWS)):
        src, tgt = (side.to_numpy(zero_copy_only=False) for side in draw_batch(number))
        at = np.random.default_rng([2, number]).permutation(BATCH_ROWS).reshape(100, -1)
        src[at[0:2]], tgt[at[0:2]] = src[at[2:4]], tgt[at[2:4]]  # earlier or later: the same
        src[at[4]], tgt[at[4]] = [[text.upper() for text in side[at[5]]] for side in (src, tgt)]
        src[at[6]], tgt[at[6]] = (side.to_numpy(zero_copy_only=False)[at[7]] for side in first)
        side, texts = ((src, test_src), (tgt, test_tgt))[number % 2]
        side[at[8]] = texts.to_numpy(zero_copy_only=False)[: at.shape[1]]
        tgt[at[9:11]] = src[at[9:11]] + tgt[at[11:13]] + tgt[at[13:15]]  # too long beside the other
        end = rows - number * BATCH_ROWS
        yield pa.array(src[:end], pa.string()), pa.array(tgt[:end], pa.string())


def test_pairs():
    """A test set, as one batch."""
    yield tuple(side.slice(0, TEST_ROWS) for side in draw_batch(1 << 20))


def draw_batch(number):
    """Sentences of words by Zipf's law; those of the other side are as many, and 3 more or less."""
    random = np.random.default_rng([1, number])
    src_words, tgt_words = vocabularies()
    lengths = np.clip(random.lognormal(2.9, 0.45, BATCH_ROWS).round(), 5, 40).astype(np.int32)
    others = np.clip(lengths + random.integers(-3, 4, BATCH_ROWS), 4, 43).astype(np.int32)
    names = pc.cast(pa.array(random.integers(100, 1 << 31, BATCH_ROWS)), pa.string())
    return tuple(
        pc.binary_join_element_wise(draw_sentences(words, counts, random), names, " ")
        for words, counts in ((src_words, lengths), (tgt_words, others))
    )


def draw_sentences(words, lengths, random):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    ranks = (len(words) + 1) ** random.random(offsets[-1]) - 1  # as 1 / rank
    drawn = words.take(pa.array(ranks.astype(np.int32)))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), drawn), " ")


@cache
def vocabularies():
    """Words of each side, the frequent ones first: those of the built-in corpus, and compounds."""
    from pipeline.builtin.quickstart import pairs

    drawn = pairs("train", 3_000)
    return tuple(words_of([pair[side] for pair in drawn]) for side in (0, 1))


def words_of(sentences):
    counts = Counter(word for text in sentences for word in text.strip(".?!").lower().split())
    words = [word for word, _ in counts.most_common() if word.isalpha()]
    random = np.random.default_rng(3)
    long = [word for word in words if len(word) > 3]
    picks = random.integers(len(long), size=(COMPOUNDS, 2)).tolist()
    compounds = (long[first] + long[second] for first, second in picks)
    return pa.array([*words, *compounds], pa.string())


def plot(measured, path):
    """CPU seconds and memory over rows, both axes in doublings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, key, label in zip(
        figure.subplots(1, 2),
        ("cpu_s", "all"),
        ("CPU seconds", "MiB of all processes"),
        strict=True,
    ):
        for stage in dict.fromkeys(found["stage"] for found in measured):
            points = [(found["rows"], found[key]) for found in measured if found["stage"] == stage]
            axes.plot(*zip(*points, strict=True), marker="o", label=stage)
        axes.set(xlabel="rows", ylabel=label, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    axes.set(yscale="linear", ylim=0)
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
