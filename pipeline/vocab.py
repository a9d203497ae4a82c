"""Stage 4: one SentencePiece vocabulary for both languages.

Out: `tokenizer.model`, and `tokenizer.json` with what must be done to text before it.
"""

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import sentencepiece

from model.config import BOS, EOS, PAD, UNK
from pipeline.artifact import Artifact, Json
from pipeline.config import VocabConfig
from pipeline.errors import ConfigError
from pipeline.job import Job
from pipeline.tables import read_batches
from pipeline.tokenizer import MODEL_FILE, SETTINGS_FILE, Tokenizer

NUM_THREADS = 4
"""Pinned: SentencePiece's result depends on it (unigram), whatever the machine has."""

ALWAYS_IN = "</>"
"""Characters with a piece in any text. SentencePiece cuts `<s>`, `</s>`, `<unk>` and `<pad>` out of
the text before it counts; without this a text with these brackets there alone would lose them."""


def vocab(config: VocabConfig, normalised: bool, dedup: Artifact, job: Job) -> Json:
    """Learn the pieces from both sides of the training pairs, or take those of another model.

    The text is already normalised, so SentencePiece changes none of it; decoding gives it back.

    Raises:
        ConfigError: If the text is too small for a vocabulary of this size, or was normalised in
            another way than the other model's.
    """
    if config.init_from:
        return _take_over(Path(config.init_from), normalised, job)
    model = io.BytesIO()
    rows = dedup.stats["rows_kept"]
    sentences = _Sentences(dedup, rows, job)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.size,
            character_coverage=config.character_coverage,
            required_chars=ALWAYS_IN,
            normalization_rule_name="identity",
            num_threads=NUM_THREADS,
            max_sentence_length=1 << 20,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
        )
    except RuntimeError as error:
        if sentences.error:
            raise sentences.error from None
        raise ConfigError(_explain(str(error), config.size, rows)) from None
    (job.out / MODEL_FILE).write_bytes(model.getvalue())
    settings = json.dumps({"normalise": normalised})
    (job.out / SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
    return {"rows": rows, "size": config.size}


def _take_over(bundle: Path, normalised: bool, job: Job) -> Json:
    for name in (MODEL_FILE, SETTINGS_FILE):
        shutil.copyfile(bundle / name, job.out / name)
    tokenizer = Tokenizer(job.out)
    if tokenizer.normalises != normalised:
        raise ConfigError(
            f"`clean.normalise` must be {str(tokenizer.normalises).lower()}, as for the model that "
            f"`vocab.init_from` names ({bundle}), but is {str(normalised).lower()}."
        )
    return {"size": tokenizer.vocab_size}


class _Sentences:
    """Both sides of all pairs. Keeps an error (or Ctrl-C), of which SentencePiece makes its own."""

    def __init__(self, dedup: Artifact, rows: int, job: Job):
        self.error: BaseException | None = None
        self._dedup = dedup
        self._rows = rows
        self._job = job

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._read()
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
            raise

    def _read(self) -> Iterator[str]:
        done = 0
        for batch in read_batches(self._dedup.paths("part-*.parquet")):
            for src, tgt in zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True):
                yield src
                yield tgt
            done += batch.num_rows
            self._job.progress(done, self._rows, "rows", "then learning the pieces")


def _explain(error: str, size: int, rows: int) -> str:
    """SentencePiece's complaint as one about the recipe."""
    largest = re.search(r"<= (\d+)", error)
    if largest:
        return (
            f"`vocab.size` must be at most {largest[1]} for these {rows} training pairs, "
            f"but is {size}. Lower it, or give more text."
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", error)
    if smallest:
        return (
            f"`vocab.size` must be at least {smallest[1]} for the characters of this "
            f"text, but is {size}; or lower `vocab.character_coverage`."
        )
    return f"No vocabulary of {size} pieces can be learnt from {rows} training pairs: {error}"
