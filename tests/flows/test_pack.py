"""What a job takes along."""

import io
import tomllib
import zipfile

from flows.pack import RECIPE_FILE, Package, as_toml, pack
from pipeline.recipe import read_recipe, shipped_recipes


def unpacked(package):
    with zipfile.ZipFile(io.BytesIO(package.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_shipped_recipe_survives_packing(tmp_path):
    for name in shipped_recipes():
        packed = tmp_path / "recipe.toml"
        packed.write_bytes(unpacked(pack(name, {"train.max_steps": 77}))[RECIPE_FILE])
        assert read_recipe(str(packed)) == read_recipe(name, {"train.max_steps": 77})


def test_any_value_and_key_of_toml_comes_back():
    table = {
        "text": 'quote " and \\ and \n line, \x7f, 🙂, ü',
        "a key = 1": [1, 2.5, True, "x", [], {}],
        "numbers": {"big": 10**15, "small": 1e-9, "negative": -3, "none": False},
        "deep": {"list": [{"path": "/a", "more": {"x": [1]}}]},
    }
    assert tomllib.loads(as_toml(table)) == table


def test_paths_are_made_absolute_where_they_are_written(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.toml").write_text(
        '[[download.train]]\nname = "a"\nsrc = "a.en"\ntgt = "a.de"\n'
    )
    (tmp_path / "deep" / "own.toml").write_text(
        'extends = "../base.toml"\nname = "own"\nsrc = "en"\ntgt = "de"\n'
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    files = unpacked(pack("../deep/own.toml", {"train.init_from": "model"}))
    recipe = tomllib.loads(files[RECIPE_FILE].decode())
    assert recipe["download"]["train"][0]["src"] == str(tmp_path / "a.en")
    assert recipe["train"]["init_from"] == str(tmp_path / "here" / "model")


def test_the_code_goes_along_and_the_same_files_make_the_same_package():
    files = unpacked(pack("quickstart", {}))
    assert {"flows/cli.py", "model/transformer.py", "pipeline/recipes/quickstart.toml"} <= set(
        files
    )
    assert not [name for name in files if "__pycache__" in name]
    assert Package(files).name == Package(dict(reversed(files.items()))).name
    assert Package({**files, "x": b""}).name != Package(files).name


def test_pins_beside_a_recipe_go_along(tmp_path):
    (tmp_path / "own.toml").write_text('extends = "quickstart"\n')
    (tmp_path / "traduko.lock").write_text("pins")
    assert unpacked(pack(str(tmp_path / "own.toml"), {}))["traduko.lock"] == b"pins"
    assert "traduko.lock" not in unpacked(pack("quickstart", {}))
