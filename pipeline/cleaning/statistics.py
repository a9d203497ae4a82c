"""What a corpus looks like: histograms of lengths and ratios, as a table for people and for plots."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.cleaning.sizes import measure

STATISTICS_FILE = "statistics.csv"
FATES = ("kept", "rejected")


class Measure(NamedTuple):
    """Equal bins from `low` on; what lies outside is counted in the first or the last."""

    low: float
    width: float
    num_bins: int


MEASURES = {
    "src_words": Measure(0, 1, 201),
    "tgt_words": Measure(0, 1, 201),
    "src_chars": Measure(0, 10, 121),
    "tgt_chars": Measure(0, 10, 121),
    "log2_word_ratio": Measure(-4.0625, 0.125, 65),
}
"""Words and characters of each side, and the logarithm of target words over source words: an even
ratio is the middle of a bin."""


class Histograms:
    """Counts of kept and of rejected rows; the same however the rows are cut into batches."""

    def __init__(self) -> None:
        self._counts = {
            (name, fate): np.zeros(measure.num_bins, dtype=np.int64)
            for name, measure in MEASURES.items()
            for fate in FATES
        }

    def add(self, fate: str, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch, which are all `kept` or all `rejected`."""
        for name, values in _measured(batch).items():
            measure = MEASURES[name]
            bins = np.floor((values - measure.low) / measure.width).astype(np.int64)
            bins = bins.clip(0, measure.num_bins - 1)
            self._counts[name, fate] += np.bincount(bins, minlength=measure.num_bins)

    def write(self, path: Path) -> None:
        """A CSV file: one row for each bin that holds anything."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("measure", "from", "below", *FATES))
            for name, measure in MEASURES.items():
                counts = np.stack([self._counts[name, fate] for fate in FATES], axis=1)
                for bin_ in np.flatnonzero(counts.any(axis=1)):
                    low = measure.low + measure.width * bin_
                    writer.writerow(
                        (name, f"{low:g}", f"{low + measure.width:g}", *counts[bin_].tolist())
                    )


def read_histogram(path: Path, measure: str) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """By fate, the middles of the bins of one measure and the rows in each."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["measure"] == measure]
    middles = np.array([(float(row["from"]) + float(row["below"])) / 2 for row in rows])
    return {fate: (middles, np.array([int(row[fate]) for row in rows])) for fate in FATES}


def _measured(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    """Each measure's value for every row."""
    sizes = {side: measure(batch[side]) for side in ("src", "tgt")}
    words = {side: each.words.to_numpy() for side, each in sizes.items()}
    chars = {side: each.chars.to_numpy() for side, each in sizes.items()}
    ratio = np.maximum(words["tgt"], 1) / np.maximum(words["src"], 1)
    return {
        "src_words": words["src"],
        "tgt_words": words["tgt"],
        "src_chars": chars["src"],
        "tgt_chars": chars["tgt"],
        "log2_word_ratio": np.log2(ratio),
    }
