"""Plots of a run's page, each as SVG text to stand in it."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.artifact import Json
from pipeline.cleaning.statistics import read_histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_SHARE = 0.995
"""A histogram ends where so much of the rows is shown."""


def lengths(statistics: Mapping[str, Path]) -> str:
    """Words a sentence, a line for each source and side; kept rows."""
    figure, (src, tgt, ratio) = _figure(3)
    for name, path in statistics.items():
        _density(src, read_histogram(path, "src_words")["kept"], name)
        _density(tgt, read_histogram(path, "tgt_words")["kept"], name)
        _density(ratio, read_histogram(path, "log2_word_ratio")["kept"], name)
    src.set(xlabel="words of the source side", ylabel="share of kept rows")
    tgt.set(xlabel="words of the target side")
    ratio.set(xlabel="target words / source words (log2)")
    src.legend(fontsize="small")
    return _svg(figure)


def training(events: Sequence[Json]) -> str:
    """Loss, learning rate and speed over the steps."""
    figure, (loss, rate, speed) = _figure(3)
    _curve(loss, events, "nll", "training")
    _curve(loss, events, "dev_nll", "dev")
    _curve(rate, events, "learning_rate", "")
    _curve(speed, events, "tokens_per_s", "")
    loss.set(xlabel="step", ylabel="negative log likelihood a token")
    loss.legend()
    rate.set(xlabel="step", ylabel="learning rate")
    speed.set(xlabel="step", ylabel="tokens/s", ylim=(0, None))
    return _svg(figure)


def element(svg: str) -> str:
    """Of an SVG file the element alone, without the XML declaration."""
    return re.sub(r"^.*?(?=<svg)", "", svg, count=1, flags=re.DOTALL)


def _figure(columns: int) -> "tuple[Figure, Sequence[Axes]]":
    from matplotlib.figure import Figure  # noqa: PLC0415 - slow to load, and only for a page

    figure = Figure(figsize=(4 * columns, 3), layout="constrained")
    axes = figure.subplots(1, columns)
    for each in axes:
        each.grid(alpha=0.3)
    return figure, axes


def _density(axes: "Axes", histogram: tuple[np.ndarray, np.ndarray], label: str) -> None:
    middles, counts = histogram
    if not counts.sum():
        return
    shares = counts / counts.sum()
    shown = int(np.searchsorted(np.cumsum(shares), SHOWN_SHARE)) + 1
    axes.step(middles[:shown], shares[:shown], where="mid", label=label)


def _curve(axes: "Axes", events: Sequence[Json], metric: str, label: str) -> None:
    points = [
        (event["step"], event["metrics"][metric]) for event in events if metric in event["metrics"]
    ]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 20 else "")


def _svg(figure: "Figure") -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    return element(out.getvalue())
