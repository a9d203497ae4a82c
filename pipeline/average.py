"""Stage 7: checkpoints, the last or the best, averaged into one model bundle.

Out: the bundle's files, see `bundle.py`.
"""

from pathlib import Path

from model.checkpoint import CheckpointError, verify
from model.checkpoint import average as average_weights
from model.fit import History
from pipeline.artifact import Artifact, Json, write_json
from pipeline.config import AverageConfig, RunConfig
from pipeline.errors import TradukoError
from pipeline.job import Job
from pipeline.translating.bundle import write_bundle

MADE_FROM = ("name", "src", "tgt", "seed", "download", "clean", "dedup", "vocab", "tokenize")
TRAINED_WITH = ("model", "train", "average")


def average(run: RunConfig, train: Artifact, vocab: Artifact, job: Job) -> Json:
    """Average the weights of the last checkpoints (Vaswani et al., 2017, section 6.1).

    Or of those with the lowest loss on the dev set.

    Raises:
        TradukoError: If a checkpoint is damaged, or the best are asked for and none was measured.
    """
    checkpoints = [path.parent for path in train.paths("*/weights.safetensors")]
    try:
        chosen = _chosen(run.average, checkpoints)
        weights = average_weights(chosen)
    except CheckpointError as error:
        raise TradukoError(str(error)) from None
    if run.average.best and len(chosen) < run.average.best:
        job.say(f"average: only {len(chosen)} checkpoints were measured on the dev set")
    write_bundle(job.out, weights, run.model, (run.src, run.tgt), vocab.folder)
    recipe = run.model_dump(mode="json", include={*MADE_FROM, *TRAINED_WITH})
    write_json(job.out / "recipe.json", recipe)
    parameters = sum(tensor.numel() for tensor in weights.values())
    return {"checkpoints": [path.name for path in chosen], "parameters": parameters}


def _chosen(config: AverageConfig, checkpoints: list[Path]) -> list[Path]:
    """The last, or the best as the newest checkpoint recorded them; in order of their steps."""
    if config.best is None:
        return checkpoints[-config.last :]
    best = History.of(verify(checkpoints[-1])).best[: config.best]
    if not best:
        raise TradukoError(
            "`average.best` needs checkpoints that were measured on the dev set, but there is none: "
            "a step must be a multiple of both `train.checkpoint_every_steps` and "
            "`train.dev_every_steps`."
        )
    steps = {scored.step for scored in best}
    return [path for path in checkpoints if int(path.name.removeprefix("step-")) in steps]
