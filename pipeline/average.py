"""Stage 7: the last checkpoints, averaged into one model bundle.

Out: the bundle's files, see `bundle.py`.
"""

from model.checkpoint import CheckpointError
from model.checkpoint import average as average_weights
from pipeline.artifact import Artifact, Json, write_json
from pipeline.bundle import write_bundle
from pipeline.config import RunConfig
from pipeline.errors import TradukoError
from pipeline.job import Job

MADE_FROM = ("name", "src", "tgt", "seed", "download", "clean", "dedup", "vocab", "tokenize")
TRAINED_WITH = ("model", "train", "average")


def average(run: RunConfig, train: Artifact, vocab: Artifact, job: Job) -> Json:
    """Average the weights of the last checkpoints (Vaswani et al., 2017, section 6.1).

    Raises:
        TradukoError: If a checkpoint is damaged.
    """
    checkpoints = [path.parent for path in train.paths("*/weights.safetensors")]
    chosen = checkpoints[-run.average.last :]
    try:
        weights = average_weights(chosen)
    except CheckpointError as error:
        raise TradukoError(str(error)) from None
    write_bundle(job.out, weights, run.model, (run.src, run.tgt), vocab.folder)
    recipe = run.model_dump(mode="json", include={*MADE_FROM, *TRAINED_WITH})
    write_json(job.out / "recipe.json", recipe)
    parameters = sum(tensor.numel() for tensor in weights.values())
    return {"checkpoints": [path.name for path in chosen], "parameters": parameters}
