"""COMET, by the command `comet-score` of the package unbabel-comet.

That package needs NumPy below 2 and other versions that Traduko cannot share an environment with,
so it is called as a program, from an environment of its own.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import ConfigError, TradukoError
from pipeline.scoring.metrics import Measure
from pipeline.scoring.significance import BOOTSTRAP_SAMPLES, SEED, Counts

COMMAND = "comet-score"


def check_comet() -> None:
    """Refuse to begin without COMET.

    Raises:
        ConfigError: If its command is not on the path.
    """
    if shutil.which(COMMAND) is None:
        raise ConfigError(
            f"`evaluate.comet` needs the command {COMMAND}, which is not on the path. Install "
            "unbabel-comet in an environment of its own, for it needs NumPy below 2: pipx install "
            "unbabel-comet. It loads the model that the recipe names over the network, unless that "
            "is a .ckpt file."
        )


def comet(model: str, sources: Sequence[str], num_gpus: int) -> Measure:
    """COMET as a metric of translations of these sources.

    Args:
        model: A name that `comet-score` knows, or the path of a .ckpt file.
        sources: In the order in which hypotheses and references will be given.
        num_gpus: To score on; 0 = on the CPU.
    """

    def counts_of(hypotheses: Sequence[str], references: Sequence[str]) -> Counts:
        found = _segment_scores(model, (sources, hypotheses, references), num_gpus)
        return np.array([(score, 1) for score in found], dtype=np.float64)

    return Measure(
        "comet",
        f"COMET x 100 ({Path(model).name})",
        counts_of,
        lambda sums: 100 * sums[0] / sums[1],
        f"nrefs:1|bs:{BOOTSTRAP_SAMPLES}|seed:{SEED}|model:{model}",
    )


def _segment_scores(
    model: str, texts: tuple[Sequence[str], Sequence[str], Sequence[str]], num_gpus: int
) -> list[float]:
    """Raises TradukoError if the command fails."""
    check_comet()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        src, hyp, ref = (folder / side for side in ("src", "hyp", "ref"))
        for path, lines in zip((src, hyp, ref), texts, strict=True):
            # One line each: the command cuts at every kind of line end that Python knows.
            text = "".join(f"{' '.join(line.split())}\n" for line in lines)
            path.write_text(text, encoding="utf-8", newline="\n")
        out = folder / "scores.json"
        options = ["--model", model, "--gpus", str(num_gpus), "--quiet", "--to_json", str(out)]
        command = [COMMAND, "-s", str(src), "-t", str(hyp), "-r", str(ref), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise TradukoError(f"{COMMAND} failed for `evaluate.comet` = {model}: {said[-1]}")
        [segments] = json.loads(out.read_text(encoding="utf-8")).values()
    return [float(segment["COMET"]) for segment in segments]
