"""Models registered in MLflow, as folders. Loaded only when one is asked for: MLflow takes seconds."""

import shutil
from pathlib import Path
from uuid import uuid4

from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from flows.mlflow_content import masked
from flows.mlflow_store import quietly
from pipeline.errors import InputError, TradukoError


def registered_folder(address: str, name: str, version: str | int, cache: Path) -> Path:
    """The folder of a registered model.

    Args:
        address: Of the MLflow store.
        name: Of the model.
        version: Its number, or an alias.
        cache: Files that only the store has are fetched into here, once.

    Raises:
        InputError: If it is not registered, or the store does not answer.
        TradukoError: If its files are gone.
    """
    with quietly():
        try:
            found = _find(MlflowClient(address), name, version)
            source = found.source or ""
            if "://" in source:
                return _fetched(address, source, cache / name / str(found.version))
        except MlflowException as error:
            raise InputError(
                f"Model `{name}` ({version}) is not to be had from {masked(address)}: "
                f"{error.message}"
            ) from None
    if not Path(source).is_dir():
        raise TradukoError(
            f"Version {found.version} of model `{name}` lies in {source}, which is not there: it "
            "was removed, or is on another machine."
        )
    return Path(source)


def _find(client: MlflowClient, name: str, version: str | int) -> ModelVersion:
    if isinstance(version, int):
        return client.get_model_version(name, str(version))
    return client.get_model_version_by_alias(name, version)


def _fetched(address: str, source: str, folder: Path) -> Path:
    if not folder.is_dir():
        new = folder.with_name(f".{folder.name}.{uuid4().hex}")
        new.mkdir(parents=True)
        try:
            found = download_artifacts(source, dst_path=str(new), tracking_uri=address)
            Path(found).replace(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return folder
