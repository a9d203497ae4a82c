"""The command that writes models for CTranslate2, and translating with what it wrote."""

import json

import pytest

from flows.cli import main
from model.config import ModelConfig

pytest.importorskip("ctranslate2")

SHAPE = ModelConfig(dim=16, ff_dim=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)


def test_an_exported_model_translates_and_is_not_written_twice(tmp_path, make_bundle, capsys):
    folder, out = make_bundle(tmp_path, SHAPE), tmp_path / "out"
    (tmp_path / "text").write_text("the man\n\na house\n")
    export = ["export", "--model", str(folder), "--output", str(out), "--quantization", "int8"]
    assert main([*export, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["folder"] == str(out)
    assert document["quantization"] == "int8"
    translate = ["translate", "--threads", "1", str(tmp_path / "text"), "--model"]
    assert main([*translate, str(out)]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert main([*translate, str(folder), "--engine", "ctranslate2"]) == 0
    assert capsys.readouterr().out.count("\n") == 3
    assert main(export) == 2
    assert "must be a new or empty folder" in capsys.readouterr().err
    assert main([*translate, str(out), "--alignments", "words"]) == 2
    assert "gives no alignments" in capsys.readouterr().err


def test_a_folder_without_a_model_is_refused(tmp_path, capsys):
    assert main(["export", "--model", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert "must be a model's folder" in capsys.readouterr().err
