"""Stage 4: one SentencePiece vocabulary for both languages.

Out: `tokenizer.model`, and `tokenizer.json` with what must be done to text before it.
"""

import io
import json
import re
from collections.abc import Iterator

import sentencepiece

from model.config import BOS, EOS, PAD, UNK
from pipeline.artifact import Artifact, Json
from pipeline.config import VocabConfig
from pipeline.errors import ConfigError
from pipeline.job import Job
from pipeline.tables import read_batches
from pipeline.tokenizer import MODEL_FILE, SETTINGS_FILE

NUM_THREADS = 4
"""Pinned: SentencePiece's result depends on it (unigram), whatever the machine has."""


def vocab(config: VocabConfig, normalised: bool, dedup: Artifact, job: Job) -> Json:
    """Learn the pieces from both sides of the training pairs.

    The text is already normalised, so SentencePiece changes none of it; decoding gives it back.

    Raises:
        ConfigError: If the text is too small for a vocabulary of this size.
    """
    model = io.BytesIO()
    rows = dedup.stats["rows_kept"]
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sentences(dedup, rows, job),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.size,
            character_coverage=config.character_coverage,
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
        raise ConfigError(_explain(str(error), config.size, rows)) from None
    (job.out / MODEL_FILE).write_bytes(model.getvalue())
    settings = json.dumps({"normalise": normalised})
    (job.out / SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
    return {"rows": rows, "size": config.size}


def _sentences(dedup: Artifact, rows: int, job: Job) -> Iterator[str]:
    done = 0
    for batch in read_batches(dedup.paths("part-*.parquet")):
        for src, tgt in zip(batch["src"].to_pylist(), batch["tgt"].to_pylist(), strict=True):
            yield src
            yield tgt
        done += batch.num_rows
        job.progress(done, rows, "rows", "then learning the pieces")


def _explain(error: str, size: int, rows: int) -> str:
    """SentencePiece's complaint as one about the recipe."""
    largest = re.search(r"<= (\d+)", error)
    if largest:
        return (
            f"`vocab.size` must be at most {largest[1]} for these {rows} training pairs, "
            f"but is {size}."
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", error)
    if smallest:
        return (
            f"`vocab.size` must be at least {int(smallest[1]) + 4} for the characters of this "
            f"text, but is {size}; or lower `vocab.character_coverage`."
        )
    return f"No vocabulary of {size} pieces can be learnt from {rows} training pairs: {error}"
