"""A SentencePiece model with what must travel with it: how text was normalised before it."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import sentencepiece

from model.config import BOS, EOS, PAD, UNK
from pipeline.errors import TradukoError
from pipeline.text import normalise, unescape_entities

MODEL_FILE = "tokenizer.model"
SETTINGS_FILE = "tokenizer.json"


class Tokenizer:
    """Text to piece ids and back.

    The folder holds `tokenizer.model` (SentencePiece) and `tokenizer.json` (`normalise`: whether
    text is normalised as `clean` did for training).
    """

    def __init__(self, folder: Path):
        model = (folder / MODEL_FILE).read_bytes()
        settings = (folder / SETTINGS_FILE).read_bytes()
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.normalises = bool(json.loads(settings)["normalise"])
        self.digest = hashlib.sha256(model + settings).hexdigest()
        self.vocab_size = int(self._processor.get_piece_size())
        processor = self._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise TradukoError(
                f"{folder / MODEL_FILE} must have the ids 0-3 for pad, unk, bos and eos, "
                f"but has {ids}."
            )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Piece ids of each text, without begin and end marks."""
        if self.normalises:
            texts = [normalise(unescape_entities(text)) for text in texts]
        ids: list[list[int]] = self._processor.encode(list(texts), num_threads=1)
        return ids

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of piece ids."""
        if not ids:
            return []  # SentencePiece would take it for one empty sequence
        texts: list[str] = self._processor.decode([list(row) for row in ids], num_threads=1)
        return texts
