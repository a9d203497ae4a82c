"""Where a model is: a folder, the artifact of a recipe, or a version registered in MLflow."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from flows.run import Run
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.translating.bundle import Precision
    from pipeline.translating.translator import Translator

SCHEME = "models:/"
_NAMED = re.compile(r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def load_translator(
    where: str | Path,
    *,
    device: str = "auto",
    precision: "Precision" = "fp32",
    threads: int | None = None,
    root: Path | None = None,
) -> "Translator":
    """The translator of a model.

    Args:
        where: A model's folder, an artifact of `average`, or `models:/NAME@ALIAS` of MLflow.
        device: `auto`, `cpu`, `cuda`, …
        precision: Number format of weights and products.
        threads: On a CPU: how many batches are searched at once. None: as torch is set.
        root: Whose MLflow store is asked, unless MLFLOW_TRACKING_URI names one.

    Raises:
        InputError: If there is no such model.
    """
    from pipeline.translating.translator import Translator

    folder = find_folder(str(where), root)
    return Translator.load(folder, device=device, precision=precision, threads=threads)


def find_folder(where: str, root: Path | None = None) -> Path:
    """A model's folder, however it is named: see `load_translator`."""
    if not where.startswith(SCHEME):
        return Path(where)
    named = root or Path(os.environ.get("TRADUKO_ROOT") or "artifacts")
    return _registered(where, named.expanduser().resolve())


def recipe_folder(run: Run) -> Path:
    """The folder of a recipe's model.

    Raises:
        InputError: If it is not built.
    """
    for step in run.plan():
        if step.node.stage.name == "average" and step.artifact:
            return step.artifact.folder
    raise InputError(
        f"The model of recipe `{run.config.name}` is not built in {run.root.folder}: "
        "run `traduko run` first, or name a model folder with --model."
    )


def _registered(where: str, root: Path) -> Path:
    """The folder of a registered model; its files are fetched once where the store holds them."""
    match = _NAMED.fullmatch(where)
    if not match:
        raise InputError(
            f"A registered model must read models:/NAME@ALIAS or models:/NAME/VERSION, but is "
            f"`{where}`."
        )
    from flows.mlflow_models import registered_folder

    address = os.environ.get("MLFLOW_TRACKING_URI") or _own_store(root)
    return registered_folder(
        address, match["name"], match["alias"] or int(match["version"]), root / "work" / "models"
    )


def _own_store(root: Path) -> str:
    path = root / "mlflow" / "mlflow.db"
    if not path.is_file():
        raise InputError(
            f"There is no MLflow store in {root}: set MLFLOW_TRACKING_URI, or name the root that "
            "recorded the model with --root."
        )
    return f"sqlite:///{path}"
