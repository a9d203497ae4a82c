"""Many lines through `traduko translate`: memory and speed as they go by.

    python tests/bench/translate_stream.py [--lines 1000000]

The model is tiny and untrained, lines are short and end soon: what is measured is everything around
the model. Lines come through a pipe, as fast as they are taken.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter

from measure import table, where

sys.path.insert(0, str(Path(__file__).parents[2]))

from model.config import ModelConfig
from tests.conftest import fill_bundle

SHAPE = ModelConfig(dim=16, ff_dim=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
OPTIONS = ["--beam-size", "1", "--max-extra-tokens", "0"]
PARTS = 10


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=1_000_000)
    args = parser.parse_args()
    print(where())
    with tempfile.TemporaryDirectory() as folder:
        model = fill_bundle(Path(folder), SHAPE)
        rows = measure(model, args.lines)
    print(table(["lines", "lines/s", "resident MiB", "peak MiB"], rows))


def measure(model, num_lines):
    command = [sys.executable, "-m", "flows.cli", "translate", "--model", str(model), *OPTIONS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    threading.Thread(target=feed, args=(process.stdin, num_lines), daemon=True).start()
    rows, started_at_s, count = [], perf_counter(), 0
    for part in range(1, PARTS + 1):
        count += sum(1 for _ in itertools.islice(process.stdout, num_lines // PARTS))
        took_s = perf_counter() - started_at_s
        rows.append([
            f"{part * num_lines // PARTS:,}", f"{num_lines // PARTS / took_s:,.0f}",
            *memory_mib(process.pid),
        ])  # fmt: skip
        started_at_s = perf_counter()
    count += sum(1 for _ in process.stdout)
    assert process.wait() == 0
    assert count == num_lines, f"{count:,} lines came out of {num_lines:,}"
    return rows


def feed(pipe, num_lines):
    with pipe:
        for number in range(num_lines):
            pipe.write(b"the man %d\n" % number)


def memory_mib(pid):
    """Resident now, and at most; `-` once the process has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return [
        f"{int(fields[name].split()[0]) / 1024:,.0f}" if name in fields else "-"
        for name in ("VmRSS", "VmHWM")
    ]


if __name__ == "__main__":
    main()
