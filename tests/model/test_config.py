"""Configs: ranges, messages, presets, and how a recipe's validator sees them."""

import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import pydantic
import pytest

from model.config import BASE, BIG, BOS, EOS, PAD, UNK, ModelConfig, SearchConfig, TrainConfig


class Recipe(pydantic.BaseModel):
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    search: SearchConfig = SearchConfig()


def test_base_and_big_are_the_papers():
    assert (BASE.dim, BASE.ff_dim, BASE.num_heads, BASE.num_encoder_layers) == (512, 2048, 8, 6)
    assert (BIG.dim, BIG.ff_dim, BIG.num_heads, BIG.num_decoder_layers) == (1024, 4096, 16, 6)
    assert (BASE.dropout, BIG.dropout) == (0.1, 0.3)
    for preset in (BASE, BIG):
        assert (preset.norm, preset.positions, preset.attention_bias) == (
            "post",
            "sinusoidal",
            False,
        )
        assert preset.attention_dropout == preset.ff_dropout == 0
        assert preset.head_key_dim == preset.head_value_dim == 64


def test_special_ids_are_the_first_four():
    assert [PAD, UNK, BOS, EOS] == [0, 1, 2, 3]


def test_a_step_has_about_as_many_tokens_as_the_papers():
    config = TrainConfig()
    assert config.tokens_per_micro_batch * config.micro_batches_per_step == 25_600


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_heads": 7}, r"`num_heads` must divide `dim` \(512\), but is 7\."),
        ({"num_heads": 7, "key_dim": 64}, r"`num_heads` must divide `dim` \(512\), but is 7\."),
        ({"dim": 0}, r"`dim` must be at least 1 and finite, but is 0\."),
        ({"dim": 9, "num_heads": 3}, r"`dim` must be even for sinusoidal `positions`, but is 9\."),
        ({"num_decoder_layers": 0}, r"`num_decoder_layers` must be at least 1"),
        ({"max_positions": 0}, r"`max_positions` must be at least 1"),
        ({"key_dim": 0}, r"`key_dim` must be at least 1"),
        ({"value_dim": -1}, r"`value_dim` must be at least 1"),
        ({"dropout": 1.0}, r"`dropout` must be at least 0 and below 1, but is 1\.0\."),
        ({"ff_dropout": float("nan")}, r"`ff_dropout` must be at least 0 and below 1, but is nan"),
        ({"attention_dropout": -0.1}, r"`attention_dropout` must be at least 0 and below 1"),
        ({"norm": "rms"}, r'`norm` must be "post" or "pre", but is \'rms\'\.'),
        ({"positions": "none"}, r'`positions` must be "sinusoidal" or "learned", but is \'none\''),
    ],
)
def test_a_model_out_of_range_is_refused(values: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        ModelConfig(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_steps": 0}, r"`max_steps` must be at least 1 and finite, but is 0\."),
        ({"tokens_per_micro_batch": 0}, r"`tokens_per_micro_batch` must be at least 1"),
        ({"micro_batches_per_step": 6}, r"`micro_batches_per_step` must be a power of two, but is"),
        ({"micro_batches_per_step": 0}, r"`micro_batches_per_step` must be at least 1"),
        ({"warmup_steps": 0}, r"`warmup_steps` must be at least 1"),
        ({"lr_scale": 0.0}, r"`lr_scale` must be above 0 and finite, but is 0\.0\."),
        ({"lr_scale": float("inf")}, r"`lr_scale` must be above 0 and finite, but is inf\."),
        ({"label_smoothing": 1.0}, r"`label_smoothing` must be at least 0 and below 1"),
        ({"adam_beta1": 1.0}, r"`adam_beta1` must be at least 0 and below 1"),
        ({"adam_beta2": -0.1}, r"`adam_beta2` must be at least 0 and below 1"),
        ({"adam_epsilon": 0.0}, r"`adam_epsilon` must be above 0"),
        ({"clip_norm": -1.0}, r"`clip_norm` must be at least 0"),
        ({"weight_decay": -1.0}, r"`weight_decay` must be at least 0"),
        ({"precision": "fp16"}, r'`precision` must be "fp32" or "bf16", but is \'fp16\'\.'),
        ({"checkpoint_every_steps": 0}, r"`checkpoint_every_steps` must be at least 1"),
        ({"keep_checkpoints": 0}, r"`keep_checkpoints` must be at least 1"),
        ({"dev_every_steps": 0}, r"`dev_every_steps` must be at least 1"),
    ],
)
def test_training_out_of_range_is_refused(values: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"beam_size": 0}, r"`beam_size` must be at least 1"),
        ({"num_best": 0}, r"`num_best` must be at least 1"),
        ({"num_best": 5}, r"`num_best` must be at most `beam_size` \(4\), but is 5\."),
        ({"max_extra_tokens": -1}, r"`max_extra_tokens` must be at least 0"),
        ({"temperature": 0.0}, r"`temperature` must be above 0"),
        ({"top_k": -1}, r"`top_k` must be at least 0"),
        ({"align_layer": -1}, r"`align_layer` must be at least 0"),
        ({"length_penalty": float("nan")}, r"`length_penalty` must be finite, but is nan\."),
    ],
)
def test_a_search_out_of_range_is_refused(values: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        SearchConfig(**values)


def test_widths_per_head_free_the_number_of_heads():
    config = ModelConfig(num_heads=7, key_dim=5, value_dim=3)
    assert (config.head_key_dim, config.head_value_dim) == (5, 3)


def test_a_config_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        BASE.dim = 1  # type: ignore[misc]


def test_a_recipe_turns_strings_into_values():
    recipe = Recipe.model_validate({"model": {"dim": "64", "norm": "pre"}, "train": {}})
    assert recipe.model == ModelConfig(dim=64, norm="pre")
    assert recipe.train == TrainConfig()


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("model", {"dims": 64}, "Unexpected keyword argument"),
        ("train", {"steps": 64}, "Unexpected keyword argument"),
        ("search", {"beam": 64}, "Unexpected keyword argument"),
        ("model", {"num_heads": 7}, "`num_heads` must divide `dim`"),
        ("train", {"micro_batches_per_step": 3}, "must be a power of two"),
        ("train", {"precision": "fp16"}, "Input should be 'fp32' or 'bf16'"),
        ("model", {"dim": 1.5}, "Input should be a valid integer"),
    ],
)
def test_a_recipe_refuses_what_a_config_refuses(section: str, values: dict[str, Any], message: str):
    with pytest.raises(pydantic.ValidationError, match=message):
        Recipe.model_validate({section: values})


def test_reading_configs_loads_no_torch():
    code = "import sys, model.config; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
