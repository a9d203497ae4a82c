"""A model bundle: a folder that needs nothing else to translate.

`model.safetensors` (weights), `config.json` (the model's shape, languages, tokenizer digest),
the tokenizer's files (`tokenizer.py`), `recipe.json` (what it came from, for people).
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file

from model.config import ModelConfig, SearchConfig
from model.transformer import Transformer
from pipeline.artifact import Json, write_json
from pipeline.errors import InputError, TradukoError
from pipeline.job import Progress
from pipeline.pieces.tokenizer import Tokenizer, tokenizer_files
from pipeline.translating.decoding import Batch, TorchEngine, cut_batches

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"

Precision = Literal["fp32", "bf16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Bundle:
    """A model ready to translate."""

    model: Transformer
    tokenizer: Tokenizer
    src: str
    tgt: str

    def translate(
        self,
        texts: Sequence[str],
        search: SearchConfig,
        tokens_per_batch: int,
        progress: Progress | None = None,
    ) -> list[str]:
        """One translation for each text, in order; of a blank text a blank one.

        The result does not depend on how many threads torch may use (each takes batches of its
        own), nor on `tokens_per_batch`, but for ties within rounding. What a text has beyond the
        model's longest sequence is left out.
        """
        longest = self.model.config.max_positions - 1
        ids = [row[:longest] for row in self.tokenizer.encode(texts)]
        found: list[tuple[int, ...]] = [()] * len(texts)
        done = len(texts) - sum(map(bool, ids))
        with TorchEngine(self.model) as engine:
            begun = [
                (rows, engine.submit(Batch([ids[row] for row in rows], rows), search))
                for rows in cut_batches([len(row) + 1 for row in ids], tokens_per_batch)
            ]
            for rows, wait in begun:
                for row, hypotheses in zip(rows, wait(), strict=True):
                    found[row] = hypotheses[0].ids
                done += len(rows)
                if progress:
                    progress(done, len(texts), "sentences")
        return self.tokenizer.decode(found)


def write_bundle(
    folder: Path,
    weights: Mapping[str, torch.Tensor],
    model: ModelConfig,
    languages: tuple[str, str],
    vocab: Path,
) -> None:
    """Fill an empty folder."""
    for name in tokenizer_files(vocab):
        shutil.copyfile(vocab / name, folder / name)
    tokenizer = Tokenizer(folder)
    save_file(dict(weights), folder / WEIGHTS_FILE)
    config = {
        "model": dataclasses.asdict(model),
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": tokenizer.digest,
        "src": languages[0],
        "tgt": languages[1],
    }
    if tokenizer.src_vocab_size is not None:
        config["src_vocab_size"] = tokenizer.src_vocab_size
    write_json(folder / CONFIG_FILE, config)


def load_bundle(folder: Path, device: str = "cpu", precision: Precision = "fp32") -> Bundle:
    """The model in a folder, ready to translate.

    Args:
        folder: What `write_bundle` filled.
        device: `cpu`, `cuda`, `cuda:1`, …; `auto` = a GPU where there is one.
        precision: Number format of weights and products; scores are summed in fp32.

    Raises:
        InputError: If the device is not there.
        TradukoError: If its tokenizer is not the one the model was trained with.
    """
    config = read_bundle_config(folder)
    tokenizer = Tokenizer(folder)
    if tokenizer.digest != config["tokenizer"]:
        raise TradukoError(
            f"The model in {folder} was trained with tokenizer {config['tokenizer'][:16]}…, but "
            f"the folder holds {tokenizer.digest[:16]}…: its files do not belong together."
        )
    sizes = config["vocab_size"], config.get("src_vocab_size")
    model = Transformer(ModelConfig(**config["model"]), *sizes)
    load_bundle_weights(folder, model)
    model.to(_device(device), DTYPES[precision])
    return Bundle(model.eval(), tokenizer, config["src"], config["tgt"])


def read_bundle_config(folder: Path) -> Json:
    """What a bundle says of its model: `model`, `vocab_size`, `tokenizer` (digest), `src`, `tgt`."""
    config: Json = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    return config


def load_bundle_weights(folder: Path, model: Transformer) -> None:
    """Give a model of the same shape the weights of a bundle."""
    model.load_state_dict(load_file(folder / WEIGHTS_FILE))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"A device must be auto, cpu or cuda, but is `{name}`.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"Device `{name}` is not there: torch sees {count} GPUs. Take `cpu`.")
    return device
