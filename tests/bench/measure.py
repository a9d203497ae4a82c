"""What the benchmarks of this folder share: estimates with intervals, memory, and where it ran."""

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

RESAMPLES = 10_000


class Estimate(NamedTuple):
    """A median and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    def format(self, digits=0):
        return f"{self.value:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def estimate(values):
    """Median of what each round measured."""
    values = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[picks], axis=1), [0.025, 0.975])
    return Estimate(float(np.median(values)), float(low), float(high))


def peak_memory_mib():
    """The most that was ever resident of this process. Unlike `getrusage`, without its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kib) / 1024


def keep_memory():
    """Environment of training workers; read from the source, for importing it would import Ray."""
    source = (Path(__file__).parents[2] / "pipeline/ray_train.py").read_text(encoding="utf-8")
    (line,) = (line for line in source.splitlines() if line.startswith("KEEP_MEMORY = "))
    return json.loads(line.removeprefix("KEEP_MEMORY = "))


def where():
    """One line on what was measured, and where."""
    return (
        f"commit {commit()}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )


def commit():
    """The commit of this tree, marked where files differ from it."""
    git = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(
        git, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown"


def table(head, rows):
    """A Markdown table: the first column is text, the others are figures."""
    return "\n".join([table_head(head), *map(table_row, rows)])


def table_head(head):
    return f"{table_row(head)}\n{table_row(['---', *['---:'] * (len(head) - 1)])}"


def table_row(cells):
    return f"| {' | '.join(map(str, cells))} |"
