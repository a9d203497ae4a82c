"""A vocabulary a side, end to end: the model learns, is averaged, translates, and starts another."""

import json

import pytest
import torch
from safetensors.torch import load_file

from model.config import SearchConfig
from pipeline.config import RunConfig
from pipeline.errors import ConfigError
from pipeline.translating.bundle import load_bundle

PAIRS = [
    ("the red door", "die rote Tür"),
    ("a small house", "ein kleines Haus"),
    ("the old man sleeps", "der alte Mann schläft"),
    ("she reads a book", "sie liest ein Buch"),
    ("we drink cold water", "wir trinken kaltes Wasser"),
    ("the dog runs fast", "der Hund rennt schnell"),
]
RECIPE = {
    "name": "separate",
    "src": "en",
    "tgt": "de",
    "clean": {"preset": "none"},
    "vocab": {"kind": "bpe", "joint": False, "size": 40, "tgt_size": 60},
    "model": {
        "dim": 32,
        "ff_dim": 64,
        "num_heads": 2,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "dropout": 0.0,
    },
    "train": {
        "max_steps": 250,
        "warmup_steps": 50,
        "tokens_per_micro_batch": 256,
        "micro_batches_per_step": 1,
        "label_smoothing": 0.0,
        "checkpoint_every_steps": 250,
        "dev_every_steps": 250,
    },
    "average": {"last": 1},
    "evaluate": {"beam_size": 2},
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for side, name in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in PAIRS)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    source = {"name": "text", "src": str(folder / "en"), "tgt": str(folder / "de")}
    return RECIPE | {"download": {"train": [source]}}


@pytest.fixture(scope="module")
def made(recipe, build_stages, tmp_path_factory):
    torch.set_num_threads(1)  # more only wait for each other in a model this small
    config = RunConfig.model_validate(recipe)
    return build_stages(config, tmp_path_factory.mktemp("separate"), "average")


def test_the_source_has_embeddings_of_its_own_and_the_target_shares_with_the_output(made):
    folder = made["average"].folder
    weights = load_file(folder / "model.safetensors")
    assert weights["src_embedding.weight"].shape == (40, 32)
    assert weights["embedding.weight"].shape == (60, 32)
    config = json.loads((folder / "config.json").read_text())
    assert (config["src_vocab_size"], config["vocab_size"]) == (40, 60)
    assert {"tokenizer.src.model", "tokenizer.tgt.model"} <= {
        each.name for each in folder.iterdir()
    }


def test_the_model_translates_what_it_learnt(made):
    bundle = load_bundle(made["average"].folder)
    src, tgt = zip(*PAIRS, strict=True)
    assert bundle.translate(src, SearchConfig(beam_size=2), 500) == list(tgt)


def test_another_run_starts_from_it(recipe, made, build_stages, tmp_path):
    start = str(made["average"].folder)
    again = recipe | {
        "vocab": {"init_from": start},
        "train": recipe["train"] | {"max_steps": 1, "init_from": start},
    }
    found = build_stages(RunConfig.model_validate(again), tmp_path, "train")
    assert found["tokenize"].stats["tokenizer"] == made["tokenize"].stats["tokenizer"]
    assert found["train"].stats["steps"] == 1
    joint = again | {"vocab": {"kind": "bpe", "size": 60}}
    with pytest.raises(ConfigError, match="must be a model with this recipe's vocabulary"):
        build_stages(RunConfig.model_validate(joint), tmp_path, "train")
