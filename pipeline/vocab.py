"""Stage 4: the SentencePiece vocabulary of both languages, or one of each.

Out: `tokenizer.model` (or `tokenizer.src.model` and `tokenizer.tgt.model`), and `tokenizer.json`
with what must be done to text before it.
"""

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import sentencepiece

from model.config import BOS, EOS, PAD, UNK
from pipeline.artifact import Artifact, Json
from pipeline.config import PIECE_LIKE_A_MARK, VocabConfig
from pipeline.errors import ConfigError
from pipeline.job import Job
from pipeline.pieces.coverage import Coverage, unused_pieces
from pipeline.pieces.sample import Sample
from pipeline.pieces.tokenizer import (
    MODEL_FILE,
    SETTINGS_FILE,
    SIDE_FILES,
    Tokenizer,
    tokenizer_files,
)

NUM_THREADS = 4
"""Pinned: SentencePiece's result depends on it (unigram), whatever the machine has."""

ALWAYS_IN = "</>"
"""Characters with a piece in any text: those around the marks, which a vocabulary may meet later."""

MARKS = PIECE_LIKE_A_MARK.pattern
"""SentencePiece cuts these out of the text that it learns from. With spaces inside they stay, and
so do the letters in them, which may be nowhere else."""

SKIPPED = "[\u2585\0]"
"""SentencePiece passes over a whole sentence with one of these."""


class Learning(NamedTuple):
    """One vocabulary to learn."""

    file: str
    sides: tuple[str, ...]
    size: int
    field: str
    """The recipe's field with the size."""


def vocab(config: VocabConfig, normalised: bool, dedup: Artifact, job: Job) -> Json:
    """Learn the pieces from the training pairs, or take those of another model.

    The text is already normalised, so SentencePiece changes none of it; decoding gives it back.

    Raises:
        ConfigError: If the text is too small or too rich for a vocabulary of this size, or was
            normalised in another way than the other model's.
    """
    sample = Sample(dedup, config.max_sentences // (2 if config.joint else 1))
    if config.init_from:
        _take_over(Path(config.init_from), normalised, job)
    else:
        for learning in _learnings(config):
            _learn(learning, config, sample, job)
        settings = json.dumps({"normalise": normalised})
        (job.out / SETTINGS_FILE).write_text(settings + "\n", encoding="utf-8")
    return _report(Tokenizer(job.out), sample)


def _learnings(config: VocabConfig) -> list[Learning]:
    if config.joint:
        return [Learning(MODEL_FILE, ("src", "tgt"), config.size, "vocab.size")]
    tgt_size = config.tgt_size or config.size
    tgt_field = "vocab.tgt_size" if config.tgt_size else "vocab.size"
    return [
        Learning(SIDE_FILES["src"], ("src",), config.size, "vocab.size"),
        Learning(SIDE_FILES["tgt"], ("tgt",), tgt_size, tgt_field),
    ]


def _learn(learning: Learning, config: VocabConfig, sample: Sample, job: Job) -> None:
    model = io.BytesIO()
    sentences = _Sentences(sample, learning.sides, job)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=config.kind,
            vocab_size=learning.size,
            character_coverage=config.character_coverage,
            required_chars="".join(c for c in ALWAYS_IN if c not in config.user_symbols),
            normalization_rule_name="identity",
            num_threads=NUM_THREADS,
            max_sentence_length=1 << 20,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            minloglevel=2,
            **_extras(config),
        )
    except RuntimeError as error:
        if sentences.error:
            raise sentences.error from None
        raise ConfigError(_explain(str(error), learning, sentences.rows)) from None
    (job.out / learning.file).write_bytes(model.getvalue())


def _extras(config: VocabConfig) -> dict[str, Any]:
    """Options that the model records even at their default: given only where they are used."""
    extras: dict[str, Any] = {}
    if config.byte_fallback:
        extras["byte_fallback"] = True
    if config.user_symbols:
        extras["user_defined_symbols"] = config.user_symbols
    return extras


def _take_over(bundle: Path, normalised: bool, job: Job) -> None:
    for name in tokenizer_files(bundle):
        shutil.copyfile(bundle / name, job.out / name)
    tokenizer = Tokenizer(job.out)
    if tokenizer.normalises != normalised:
        raise ConfigError(
            f"`clean.normalise` must be {str(tokenizer.normalises).lower()}, as for the model that "
            f"`vocab.init_from` names ({bundle}), but is {str(normalised).lower()}."
        )


def _report(tokenizer: Tokenizer, sample: Sample) -> Json:
    """What the vocabulary makes of the text that it was learnt from."""
    models = {"src": tokenizer.src, "tgt": tokenizer.tgt}
    sides = {side: Coverage(model) for side, model in models.items()}
    for batch in sample:
        for side, coverage in sides.items():
            coverage.add(batch[side])
    if tokenizer.src_vocab_size is None:
        sizes = {"size": tokenizer.vocab_size}
        unused = unused_pieces(tokenizer.tgt, list(sides.values()))
    else:
        sizes = {"size": tokenizer.src_vocab_size, "tgt_size": tokenizer.vocab_size}
        unused = sum(unused_pieces(models[side], [sides[side]]) for side in sides)
    return {
        "rows": sample.rows_in,
        "sampled_rows": sample.num_rows,
        **sizes,
        "unused_pieces": unused,
        **{side: coverage.report() for side, coverage in sides.items()},
    }


class _Sentences:
    """Sentences to learn from. Keeps an error (or Ctrl-C), of which SentencePiece makes its own."""

    def __init__(self, sample: Sample, sides: tuple[str, ...], job: Job):
        self.error: BaseException | None = None
        self.rows = 0
        """Pairs given so far."""
        self._sample = sample
        self._sides = sides
        self._job = job

    def __iter__(self) -> Iterator[str]:
        try:
            yield from self._read()
        except (Exception, KeyboardInterrupt) as error:
            self.error = error
            raise

    def _read(self) -> Iterator[str]:
        for batch in self._sample:
            columns = [_learnable(batch[side]).to_pylist() for side in self._sides]
            for texts in zip(*columns, strict=True):
                yield from texts
            self.rows += batch.num_rows
            self._job.progress(self.rows, self._sample.num_rows, "rows", "then learning the pieces")


def _learnable(texts: pa.Array) -> pa.Array:
    """The texts without what SentencePiece would leave out."""
    texts = pc.replace_substring_regex(texts, MARKS, r"< \1 >")
    return pc.replace_substring_regex(texts, SKIPPED, " ")


def _explain(error: str, learning: Learning, rows: int) -> str:
    """SentencePiece's complaint as one about the recipe."""
    largest = re.search(r"<= (\d+)", error)
    if largest:
        return (
            f"`{learning.field}` must be at most {largest[1]} for these {rows} training pairs, "
            f"but is {learning.size}. Lower it, or give more text."
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", error)
    if smallest:
        return (
            f"`{learning.field}` must be at least {smallest[1]} for the characters of this "
            f"text, but is {learning.size}; or lower `vocab.character_coverage`."
        )
    return (
        f"No vocabulary of {learning.size} pieces can be learnt from {rows} training pairs: {error}"
    )
