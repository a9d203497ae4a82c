"""The rules of cleaning: rows a second of one core, beside OpusFilter 3.3 on the same rows.

    python -m venv /tmp/opus && /tmp/opus/bin/pip install 'opusfilter==3.3.*' 'py3langid<0.4'
    python tests/bench/cleaning.py --opusfilter /tmp/opus/bin/python [--rows 20_000] [--rounds 5]

Each round runs both on each corpus of shared/data, one after the other, in fresh processes, and times
the second of two passes: in the first they load what they need. Speed is rows for each second of CPU
time, the median of the rounds; reading and writing files is counted only
where it says so. Sets of rules:

- same: words and characters a side, their ratios, longest word, with equal bounds: both must keep
  the same rows, and the script fails if they do not;
- shared: with HTML tags, share of letters, copies and numbers besides, which both have in their own
  ways; rows on which they differ are counted;
- default: every default rule but language identification (OpusFilter: shared);
- language: language identification alone (OpusFilter: its own default, py3langid);
- files: shared, from text files to files of rows, text normalised besides (OpusFilter: not).
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

import pyarrow as pa
from measure import estimate, table_head, table_row, where

from pipeline.artifact import Identity, Root
from pipeline.clean import clean
from pipeline.cleaning.rules import apply
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.compute import InProcess
from pipeline.config import CleanConfig, ComputeConfig, Rule
from pipeline.job import Job
from pipeline.reading.formats import read_corpus
from pipeline.text import normalise_column

DATA = Path(__file__).parents[3] / "shared" / "data"
CORPORA = {
    "Multi30k": "multi30k/train.{}.gz",
    "Tatoeba": "tatoeba_de_en/train.{}.gz",
    "LibreOffice help": "libreoffice_help/{}.gz",
}
ROWS_AT_ONCE = 65_536
NEARLY = 1e-9  # OpusFilter's ratio must be less than its threshold, ours at most the bound

SAME = ["length", "ratio", "long_word"]
SHARED = [*SAME, "tags", "letters", "copied", "numbers"]
BOUNDS = {"max_short_words": 0, "same_tags": False, "min_letter_words": 0.0}
SAME_FILTERS = [
    {"LengthFilter": {"unit": "word", "min_length": 1, "max_length": 150}},
    {"LengthFilter": {"unit": "char", "min_length": 1, "max_length": 1023}},
    {"LengthRatioFilter": {"unit": "word", "threshold": 2 + NEARLY}},
    {"LengthRatioFilter": {"unit": "char", "threshold": 3 + NEARLY}},
    {"LongWordFilter": {"threshold": 61}},
]
FILTERS = {
    "same": SAME_FILTERS,
    "shared": [
        *SAME_FILTERS,
        {"HtmlTagFilter": {}},
        {"AlphabetRatioFilter": {"threshold": 0.5, "exclude_whitespace": True}},
        {"SimilarityFilter": {"threshold": 0.9, "lowercase": True}},
        {"NonZeroNumeralsFilter": {"threshold": 0.5}},
    ],
    "language": [
        {"LanguageIDFilter": {"languages": ["en", "de"], "thresholds": [0, 0]}},
    ],
}
THEIRS = {"default": "shared"}
HEAD = (
    "corpus",
    "rules",
    "ours, rows/s",
    "OpusFilter, rows/s",
    "times",
    "kept",
    "kept by it",
    "differ",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--opusfilter", help="Python of an environment that has OpusFilter 3.3")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        json.dump(ours(json.load(sys.stdin)), sys.stdout)
        return
    print(f"{where()}\n\n{table_head(HEAD)}")
    for corpus in CORPORA:
        print("\n".join(map(table_row, compared(corpus, options))), flush=True)


def compared(corpus, options):
    with tempfile.TemporaryDirectory() as folder:
        job = write(corpus, options.rows, Path(folder))
        rounds = [one_round(job, options.opusfilter) for _ in range(options.rounds)]
    return [line(corpus, name, rounds, job["rows"]) for name in rounds[0][0]]


def write(corpus, rows, folder):
    """The corpus' first rows, normalised, as files in a folder."""
    for side, language in (("src", "en"), ("tgt", "de")):
        written = gzip.decompress((DATA / CORPORA[corpus].format(language)).read_bytes())
        texts = normalise_column(pa.array(written.decode().split("\n")[:-1][:rows]))
        text = "".join(f"{each}\n" for each in texts.to_pylist())
        (folder / side).write_text(text, encoding="utf-8", newline="\n")
    sides = {side: str(folder / side) for side in ("src", "tgt")}
    return {**sides, "folder": str(folder), "rows": len(texts), "filters": FILTERS}


def one_round(job, opusfilter):
    """What ours and OpusFilter did, each in a process of its own and on one core."""
    here = Path(__file__)
    commands = [[sys.executable, here, "--ours"]]
    if opusfilter:
        commands.append([opusfilter, here.with_name("cleaning_opusfilter.py")])
    return [asked(command, job) for command in commands]


def asked(command, job):
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        command,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=os.environ | threads,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def line(corpus, name, rounds, num_rows):
    mine = [round_[0][name] for round_ in rounds]
    speed = estimate([num_rows / each["cpu_s"] for each in mine])
    cells = [corpus, name, speed.format()]
    theirs = [each.get(THEIRS.get(name, name)) for _, *other in rounds for each in other]
    if not theirs:
        return [*cells, "", "", len(mine[0].get("kept", ())), "", ""]
    other = estimate([num_rows / each["cpu_s"] for each in theirs])
    pairs = zip(mine, theirs, strict=True)
    times = estimate([each["cpu_s"] / one["cpu_s"] for one, each in pairs])
    kept, kept_there = (set(each[0].get("kept", ())) for each in (mine, theirs))
    if name == "same" and kept != kept_there:
        sys.exit(f"{corpus}: rows {sorted(kept ^ kept_there)} are kept by one only.")
    counts = [len(kept), len(kept_there), len(kept ^ kept_there)] if kept else ["", "", ""]
    return [*cells, other.format(), times.format(1), *counts]


def ours(job):
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    batches = list(read_corpus(Path(job["folder"])))
    found = {}
    for name, parameters in sets().items():
        for _ in range(2):  # the first time it loads what it needs
            started = time.process_time()
            kept = [apply(part, parameters).kept["line"] for part in parts(batches)]
            took_s = time.process_time() - started
        lines = [row - 1 for column in kept for row in column.to_pylist()]
        found[name] = {"cpu_s": took_s, "kept": lines}
    found["files"] = {"cpu_s": through_files(job)}
    return found


def sets():
    only = {
        "same": RuleParameters(**BOUNDS, rules_off=all_but(*SAME)),
        "shared": RuleParameters(**BOUNDS, rules_off=all_but(*SHARED)),
    }
    languages = {"src_language": "en", "tgt_language": "de"}
    return only | {
        "default": RuleParameters(**languages, rules_off=["language"]),
        "language": RuleParameters(**languages, rules_off=all_but("language")),
    }


def all_but(*rules):
    return [rule for rule in get_args(Rule) if rule not in rules]


def parts(batches):
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield batch.slice(start, ROWS_AT_ONCE)


def through_files(job):
    """The stage as it runs in a recipe: text files in, Parquet of kept and rejected rows out."""
    folder = Path(job["folder"])
    with tempfile.TemporaryDirectory() as place:
        root = Root(Path(place) / "root", lambda _: None)
        for side in ("src", "tgt"):
            (Path(place) / side).write_bytes((folder / side).read_bytes())
        raw = root.produce(
            Identity("download", 1, {}, ()), lambda out, _: copied(folder, out, job)
        )[0]
        config = CleanConfig(**BOUNDS, rules_off=all_but(*SHARED))
        started = time.process_time()
        root.produce(
            Identity("clean", 1, {}, (), aside=("rejected/*",)),
            lambda out, work: clean(config, ("en", "de"), "own", raw, workplace(out, work)),
        )
        return time.process_time() - started


def copied(folder, out, job):
    for side in ("src", "tgt"):
        (out / side).write_bytes((folder / side).read_bytes())
    return {"rows": job["rows"]}


def workplace(out, work):
    silent = {"progress": lambda *_: None, "say": lambda _: None}
    return Job(
        out=out, work=work, compute=InProcess(), settings=ComputeConfig(), files=None, **silent
    )


if __name__ == "__main__":
    main()
