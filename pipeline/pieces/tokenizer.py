"""Text to piece ids and back, for both languages, with what must travel with it.

A folder holds `tokenizer.model` for both, or `tokenizer.src.model` and `tokenizer.tgt.model`
(SentencePiece), and `tokenizer.json` (`normalise`: whether text is normalised as `clean` did for
training).
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa

from model.config import BOS, EOS, PAD, UNK
from pipeline.errors import TradukoError
from pipeline.pieces.subwords import Encoded, Subwords
from pipeline.text import normalise, unescape_entities

MODEL_FILE = "tokenizer.model"
SIDE_FILES = {"src": "tokenizer.src.model", "tgt": "tokenizer.tgt.model"}
SETTINGS_FILE = "tokenizer.json"

Side = Literal["src", "tgt"]


class Tokenizer:
    """Text to piece ids and back.

    Raises:
        TradukoError: If a model's marks are not those of this project.
    """

    def __init__(self, folder: Path):
        names = model_files(folder)
        models = [(folder / name).read_bytes() for name in names]
        settings = (folder / SETTINGS_FILE).read_bytes()
        subwords = [Subwords(model) for model in models]
        for name, one in zip(names, subwords, strict=True):
            _check_marks(folder / name, one)
        self.src, self.tgt = subwords[0], subwords[-1]
        self.normalises = bool(json.loads(settings)["normalise"])
        self.digest = hashlib.sha256(b"".join([*models, settings])).hexdigest()
        self.vocab_size = self.tgt.size
        """Pieces of the target side."""
        self.src_vocab_size = self.src.size if len(models) > 1 else None
        """Pieces of the source side; none = both sides share a vocabulary."""

    def encode(self, texts: Sequence[str], side: Side = "src") -> list[list[int]]:
        """Piece ids of each text, without begin and end marks."""
        if self.normalises:
            texts = [normalise(unescape_entities(text)) for text in texts]
        return self._side(side).encode(texts)

    def encode_column(self, texts: pa.Array, side: Side) -> Encoded:
        """Piece ids of texts that are normalised already."""
        return self._side(side).encode_column(texts)

    def names(self, ids: Sequence[int], side: Side) -> list[str]:
        """The piece of each id; `▁` stands for a space."""
        processor = self._side(side).processor
        return [str(processor.id_to_piece(number)) for number in ids]

    def decode(self, ids: Sequence[Sequence[int]], side: Side = "tgt") -> list[str]:
        """Text of each sequence of piece ids."""
        return self._side(side).decode(ids)

    def _side(self, side: Side) -> Subwords:
        return self.src if side == "src" else self.tgt


def model_files(folder: Path) -> list[str]:
    """Names of the SentencePiece models in a folder: one for both sides, or the source's first."""
    joint = not (folder / SIDE_FILES["src"]).exists()
    return [MODEL_FILE] if joint else list(SIDE_FILES.values())


def tokenizer_files(folder: Path) -> list[str]:
    """Names of the files that make a tokenizer."""
    return [*model_files(folder), SETTINGS_FILE]


def _check_marks(path: Path, subwords: Subwords) -> None:
    processor = subwords.processor
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids != (PAD, UNK, BOS, EOS):
        raise TradukoError(
            f"{path} must have the ids 0-3 for pad, unk, bos and eos, but has {ids}."
        )
