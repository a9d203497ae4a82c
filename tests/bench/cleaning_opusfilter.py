"""OpusFilter's side of `cleaning.py`, run by the Python of an environment that has it.

Reads a job (JSON) from standard input, and writes CPU seconds and the lines kept, by set of filters.
"""

import json
import logging
import sys
import time
from pathlib import Path

from opusfilter.opusfilter import OpusFilter
from opusfilter.pipeline import FilterPipeline

logging.disable(logging.WARNING)


def main():
    job = json.load(sys.stdin)
    sides = [Path(job[side]).read_text("utf-8").split("\n")[:-1] for side in ("src", "tgt")]
    pairs = list(zip(*sides, strict=True))
    found = {}
    for name, filters in job["filters"].items():
        pipeline = FilterPipeline.from_config(filters)
        for _ in range(2):  # the first time it loads what it needs
            started = time.process_time()
            kept = list(pipeline.filter(pairs))
            took_s = time.process_time() - started
        found[name] = {"cpu_s": took_s, "kept": lines_of(set(kept), pairs)}
    found["files"] = {"cpu_s": through_files(job)}
    json.dump(found, sys.stdout)


def lines_of(kept, pairs):
    return [line for line, pair in enumerate(pairs) if pair in kept]


def through_files(job):
    """The same step as a user runs it: text files in, text files out."""
    step = {
        "inputs": [job["src"], job["tgt"]],
        "outputs": ["kept.src", "kept.tgt"],
        "filters": job["filters"]["shared"],
    }
    config = {
        "common": {"output_directory": job["folder"]},
        "steps": [{"type": "filter", "parameters": step}],
    }
    started = time.process_time()
    OpusFilter(config).execute_steps(overwrite=True)
    return time.process_time() - started


if __name__ == "__main__":
    main()
