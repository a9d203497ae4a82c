"""Models are found by folder, and by their names in MLflow."""

import shutil

import pytest

from flows import mlflow_store
from flows.models import find_folder, load_translator
from model.config import ModelConfig
from pipeline.errors import InputError, TradukoError

SHAPE = ModelConfig(dim=8, ff_dim=8, num_heads=1, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture(scope="module")
def registered(tmp_path_factory, make_bundle):
    """A root whose store holds two versions of a model: a folder, and files sent to the store."""
    root = tmp_path_factory.mktemp("root")
    (root / "mlflow").mkdir()
    folder = make_bundle(root / "mlflow", SHAPE)
    bundle = root / "bundle"
    bundle.mkdir()
    for path in [path for path in folder.iterdir() if path.is_file()]:
        path.rename(bundle / path.name)
    shutil.rmtree(folder / "vocab")
    with mlflow_store.quietly():
        store = mlflow_store.open_store(f"sqlite:///{root}/mlflow/mlflow.db", "mine", root)
        run = store.create("average", {mlflow_store.FINGERPRINT_TAG: "f"})
        store.register("mine", run, "content", bundle)
        store.upload(run.run_id, bundle, "model")
        store.client.create_model_version("mine", f"{run.artifacts}/model", run.run_id)
    return root


@pytest.fixture(autouse=True)
def no_store_given(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("TRADUKO_ROOT", raising=False)


def test_a_registered_model_is_found_by_alias_and_by_version(registered):
    bundle = registered / "bundle"
    assert find_folder("models:/mine@current", registered) == bundle
    assert find_folder("models:/mine/1", registered) == bundle
    (line,) = load_translator("models:/mine@current", device="cpu", root=registered).translate(
        ["the man"]
    )
    assert line.src == "the man"


def test_files_that_the_store_holds_are_fetched_once(registered):
    folder = find_folder("models:/mine/2", registered)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in (registered / "bundle").iterdir()
    )
    (folder / "mark").touch()
    again = find_folder("models:/mine/2", registered)
    assert (again / "mark").exists()
    (folder / "mark").unlink()


def test_models_that_are_not_registered_are_refused(registered, tmp_path):
    with pytest.raises(InputError, match=r"must read models:/NAME@ALIAS or models:/NAME/VERSION"):
        find_folder("models:/mine", registered)
    with pytest.raises(InputError, match=r"Model `mine` \(best\) is not to be had from sqlite"):
        find_folder("models:/mine@best", registered)
    with pytest.raises(InputError, match=r"Model `other` \(1\) is not to be had"):
        find_folder("models:/other/1", registered)
    with pytest.raises(InputError, match="There is no MLflow store in"):
        find_folder("models:/mine@current", tmp_path)


def test_a_registered_folder_that_is_gone_is_told(registered):
    bundle = registered / "bundle"
    bundle.rename(registered / "gone")
    try:
        with pytest.raises(TradukoError, match="which is not there: it was removed, or is on"):
            find_folder("models:/mine@current", registered)
    finally:
        (registered / "gone").rename(bundle)
