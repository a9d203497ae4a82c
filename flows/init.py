"""`traduko init`: a recipe for one's own text, its sizes chosen from that text and explained.

The choices go from what is known to work: the built-in recipes' models for up to a few hundred
thousand pairs on two cores, and the paper's base model from two million pairs on, with one step
between. They are a start, not an optimum.
"""

import json
import math
import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from pipeline.cleaning.sizes import num_words
from pipeline.errors import ConfigError, CorpusError
from pipeline.reading.formats import read_source
from pipeline.reading.lines import checked, read_lines
from pipeline.recipe import validate
from pipeline.sources import FORMATS, Source, ending
from pipeline.text import normalise_column

MIN_PAIRS = 10
"""Fewer pairs give no vocabulary, model and scores that mean anything."""

_MAX_HOLDOUT = 2_000  # pairs of a dev or test set that `dedup` takes; enough for a score
_HOLDOUT_SHARE = 0.05
_MAX_WORDS_TOLD_APART = 200_000  # enough for the largest vocabulary
_RARE_CHARACTERS_FROM = 2_000  # more different characters: Chinese, Japanese, Korean
_PIECES_PER_WORD = 1.35
_COMMENT_COLUMN = 28


class Size(NamedTuple):
    """How much text there is."""

    pairs: int
    src_words: int
    tgt_words: int
    distinct_words: int
    """Of both sides together, as far as they were told apart."""
    distinct_chars: int

    @property
    def target_tokens(self) -> int:
        """An estimate: pieces of the longer side, and an end for each pair."""
        return round(max(self.src_words, self.tgt_words) * _PIECES_PER_WORD) + self.pairs


class Tier(NamedTuple):
    """A model that suits a size of text, and how it is trained."""

    name: str
    max_words: float
    """Of the longer side."""
    max_pairs: float
    dim: int
    num_heads: int
    num_layers: int
    norm: str
    max_vocab: int
    tokens_per_micro_batch: int
    micro_batches_per_step: int
    max_warmup_steps: int
    peak_rate: float


TIERS = (
    Tier("a very small", 1e5, 1e5, 128, 4, 2, "pre", 4_000, 512, 2, 300, 0.003),
    Tier("a small", 3e6, 5e5, 256, 4, 3, "pre", 8_000, 512, 4, 800, 0.00177),
    Tier("a middling", 4e7, 2e6, 384, 6, 4, "pre", 16_000, 2_048, 4, 2_000, 0.00114),
    Tier(
        "the paper's base", math.inf, math.inf, 512, 8, 6, "post", 32_000, 3_200, 8, 4_000, 0.0007
    ),
)


class Suggestion(NamedTuple):
    """What a recipe should say for a size of text."""

    tier: Tier
    vocab_kind: str
    vocab_size: int
    character_coverage: float
    dropout: float
    epochs: float
    max_steps: int
    warmup_steps: int
    lr_scale: float
    checkpoint_every_steps: int
    num_averaged: int
    holdout: int
    """Pairs of each set that is not given."""


class OwnText(NamedTuple):
    """What a recipe is to be written for. A corpus is two aligned files, or one TSV or JSONL file."""

    src: str
    """Source language code."""
    tgt: str
    """Target language code."""
    train: Sequence[Sequence[Path]]
    """Corpora to learn from."""
    dev: Sequence[Sequence[Path]] = ()
    """Sets to watch the loss on; none = held out of the training text."""
    test: Sequence[Sequence[Path]] = ()
    """Sets to score; none = held out of the training text."""


def write_recipe(
    target: Path, own: OwnText, name: str | None = None, *, force: bool = False
) -> None:
    """Write a recipe that runs as it is.

    Args:
        target: The recipe to write, named `.toml`.
        own: The text.
        name: Of the recipe; none = the file's.
        force: Write over a file that is there.

    Raises:
        ConfigError: If the recipe cannot be written, or what was given makes none.
        CorpusError: If a corpus cannot be read, or is too small.
    """
    _check_target(target, force=force)
    head = {"name": _slug(name or target.stem, "own"), "src": own.src, "tgt": own.tgt}
    download = _sources(own, target.parent)
    config = validate({**head, "download": _absolute(download, target.parent)})
    for source in (*config.download.dev, *config.download.test):
        measure([source])  # a wrong file is said now
    size = measure(config.download.train)
    text = _recipe(head, download, size, suggest(size))
    validate(tomllib.loads(text))
    try:
        target.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from None


def measure(sources: Sequence[Source]) -> Size:
    """Read the sources once and count.

    Raises:
        CorpusError: If one cannot be read.
    """
    pairs = 0
    words = {"src": 0, "tgt": 0}
    distinct: set[str] = set()
    characters: set[str] = set()
    for source in sources:
        for batch in read_source(source):
            pairs += batch.num_rows
            for side in words:
                texts = normalise_column(batch[side])
                words[side] += pc.sum(num_words(texts)).as_py()
                found = pc.unique(pc.utf8_split_whitespace(texts).flatten()).to_pylist()
                characters.update("".join(found))
                if len(distinct) < _MAX_WORDS_TOLD_APART:
                    distinct.update(found)
    return Size(pairs, words["src"], words["tgt"], len(distinct), len(characters))


def suggest(size: Size) -> Suggestion:
    """Sizes of a vocabulary, a model and its training that suit a size of text.

    Raises:
        CorpusError: If there is too little of it.
    """
    if size.pairs < MIN_PAIRS:
        raise CorpusError(
            f"A recipe needs at least {MIN_PAIRS} training pairs, but here are {size.pairs}. "
            "Give more text."
        )
    words = max(size.src_words, size.tgt_words)
    tier = next(tier for tier in TIERS if words < tier.max_words and size.pairs < tier.max_pairs)
    vocab_size, coverage = _vocab(size, tier)
    is_base = tier is TIERS[-1]
    # Multi30k's 500,000 tokens are best read some 15 times; a smaller text more often.
    epochs = 15 * (500_000 / size.target_tokens) ** 0.25
    step_tokens = tier.tokens_per_micro_batch * tier.micro_batches_per_step
    max_steps = max(200, _rounded(epochs * size.target_tokens / step_tokens))
    max_steps = 100_000 if is_base else max_steps
    warmup = min(tier.max_warmup_steps, _rounded(max_steps * 0.225))
    return Suggestion(
        tier=tier,
        vocab_kind="bpe" if tier is TIERS[0] else "unigram",
        vocab_size=vocab_size,
        character_coverage=coverage,
        dropout=0.3 if words < 2e5 else 0.2 if words < 1e6 else 0.1,
        epochs=max_steps * step_tokens / size.target_tokens,
        max_steps=max_steps,
        warmup_steps=warmup,
        lr_scale=float(f"{tier.peak_rate * math.sqrt(tier.dim * warmup):.2g}"),
        checkpoint_every_steps=1_000 if is_base else _rounded(max_steps / 24),
        num_averaged=5 if is_base else 8,
        holdout=max(1, min(_MAX_HOLDOUT, int(size.pairs * _HOLDOUT_SHARE))),
    )


def _vocab(size: Size, tier: Tier) -> tuple[int, float]:
    """Pieces, and the share of the text's characters that must have one.

    It must have all characters. Unigram can have about half as many pieces as the text has different
    words (measured: 0.5 to 1.6, fewer for a handful of short sentences), byte pairs many times more.
    """
    characters = size.distinct_chars + 16
    wanted = characters + size.distinct_words // 4
    vocab_size = -(-min(wanted, max(tier.max_vocab, characters)) // 10) * 10
    return vocab_size, 1.0 if size.distinct_chars < _RARE_CHARACTERS_FROM else 0.9995


def _rounded(value: float) -> int:
    """Two significant digits; small numbers as they are."""
    return int(float(f"{value:.2g}")) if value >= 100 else round(value)


def _check_target(target: Path, *, force: bool) -> None:
    if target.suffix != ".toml":
        raise ConfigError(f"A recipe's name must end in .toml, but is {target}.")
    if not target.parent.is_dir():
        raise ConfigError(f"{target.parent} must be a folder for the recipe. Make it first.")
    if target.is_dir() or (target.exists() and not force):
        raise ConfigError(f"{target} is there already. Name another file, or say --force.")


Table = dict[str, Any]


def _sources(own: OwnText, folder: Path) -> dict[str, list[Table]]:
    """The recipe's sources, with paths relative to its folder and names of their own."""
    given = {"train": own.train, "dev": own.dev, "test": own.test}
    languages = (own.src, own.tgt)
    taken = {"dev", "test"} - {kind for kind, corpora in given.items() if corpora}
    sources: dict[str, list[Table]] = {}
    for kind, corpora in given.items():
        sources[kind] = []
        for files in corpora:
            name = _unused(_slug(_common_name(files), kind), taken)
            taken.add(name)
            sources[kind].append({"name": name, **_places(kind, files, folder, languages)})
    return sources


def _places(
    kind: str, files: Sequence[Path], folder: Path, languages: tuple[str, str]
) -> dict[str, object]:
    paths = [_relative(file, folder) for file in files]
    if len(paths) == 2:
        return dict(zip(("src", "tgt"), paths, strict=True))
    if len(paths) == 1 and ending(paths[0]) in FORMATS:
        return {"pairs": paths[0], **_columns(files[0], languages)}
    raise ConfigError(
        f"--{kind} takes two aligned files, or one named {', '.join(FORMATS)} that holds both sides, "
        f"but has {', '.join(paths)}. Say --{kind} again for each further corpus."
    )


def _columns(file: Path, languages: tuple[str, str]) -> dict[str, object]:
    """The language codes as columns, where the first line of a JSONL file has both as keys."""
    if FORMATS[ending(file.name)] != "jsonl":
        return {}
    try:
        first = json.loads(next(read_lines(checked(file), 1)).texts[0].as_py())
    except (ValueError, RecursionError):
        return {}  # an error that its reader tells better
    if isinstance(first, dict) and set(languages) <= first.keys():
        return {"columns": list(languages)}
    return {}


def _relative(file: Path, folder: Path) -> str:
    path = os.path.relpath(file.resolve(), folder.resolve())
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"The name of {path!r} must be UTF-8, but is not. Rename it.") from None
    return path


def _absolute(download: dict[str, list[Table]], folder: Path) -> dict[str, list[Table]]:
    """The same with paths that do not depend on the current folder."""
    places = ("src", "tgt", "pairs")
    return {
        kind: [
            {
                key: str(folder.resolve() / value) if key in places else value
                for key, value in source.items()
            }
            for source in sources
        ]
        for kind, sources in download.items()
    }


def _common_name(files: Sequence[Path]) -> str:
    """`train` for train.en and train.de; the first one's stem where nothing is common."""
    names = [file.name.removesuffix(".gz") for file in files]
    if len(names) == 1:
        return Path(names[0]).stem
    prefix = os.path.commonprefix(names)  # noqa: RUF071 - of names, letter by letter
    return prefix.rstrip("._-") or Path(names[0]).stem


def _slug(text: str, otherwise: str) -> str:
    """What names may consist of."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:70] or otherwise


def _unused(name: str, taken: set[str]) -> str:
    number = 2
    unused = name
    while unused in taken:
        unused, number = f"{name}-{number}", number + 1
    return unused


def _recipe(
    head: Table, download: dict[str, list[Table]], size: Size, suggested: Suggestion
) -> str:
    """The recipe's text."""
    src, tgt = head["src"], head["tgt"]
    lines = [
        f"# {src} to {tgt}, written by `traduko init`: every number may be changed.",
        f"# {size.pairs:,} pairs: {_amount(size.src_words)} words of {src}, "
        f"{_amount(size.tgt_words)} of {tgt}.",
        *(_line(key, value) for key, value in head.items()),
    ]
    for kind, sources in download.items():
        for source in sources:
            lines += ["", f"[[download.{kind}]]"]
            lines += [_line(key, value) for key, value in source.items()]
    missing = [kind for kind in ("dev", "test") if not download[kind]]
    if missing:
        inside = ", ".join(f"{kind} = {suggested.holdout}" for kind in missing)
        lines += [
            "",
            "[dedup]",
            f"# Pairs taken out of the training text to measure by: {_HOLDOUT_SHARE:.0%}, at most "
            f"{_MAX_HOLDOUT:,}.",
            f"holdout = {{ {inside} }}",
        ]
    return "\n".join([*lines, *_choices(size, suggested), ""])


def _choices(size: Size, suggested: Suggestion) -> list[str]:
    """The sections whose numbers come from the size of the text."""
    tier = suggested.tier
    step_tokens = tier.tokens_per_micro_batch * tier.micro_batches_per_step
    different = "over " if size.distinct_words >= _MAX_WORDS_TOLD_APART else ""
    rare = "spares pieces for the rarest characters"
    return [
        "",
        "[vocab]",
        *([_line("kind", "bpe", "can be learnt from little text")] if suggested.vocab_kind == "bpe" else []),
        _line("size", suggested.vocab_size, f"for {different}{size.distinct_words:,} different words"),
        *([_line("character_coverage", suggested.character_coverage, rare)] if suggested.character_coverage < 1 else []),
        "",
        f"[model]                     # {tier.name} model, for this amount of text",
        _line("dim", tier.dim),
        _line("ff_dim", 4 * tier.dim),
        _line("num_heads", tier.num_heads),
        _line("num_encoder_layers", tier.num_layers),
        _line("num_decoder_layers", tier.num_layers),
        _line("norm", tier.norm, "as in the paper" if tier.norm == "post" else "trains without a long warm-up"),
        _line("dropout", suggested.dropout, "the less text, the more"),
        "",
        "[train]",
        _line("max_steps", suggested.max_steps, f"reads the text about {suggested.epochs:,.0f} times; fewer are done sooner"),
        _line("tokens_per_micro_batch", tier.tokens_per_micro_batch),
        _line("micro_batches_per_step", tier.micro_batches_per_step, f"{step_tokens:,} tokens a step; the most workers that help"),
        _line("warmup_steps", suggested.warmup_steps, "the learning rate rises this long"),
        _line("lr_scale", suggested.lr_scale, f"to a peak of {tier.peak_rate:g}"),
        _line("checkpoint_every_steps", suggested.checkpoint_every_steps),
        _line("keep_checkpoints", suggested.num_averaged),
        _line("dev_every_steps", 4 * suggested.checkpoint_every_steps),
        "",
        "[average]",
        _line("last", suggested.num_averaged, "checkpoints; together better than the last one"),
    ]  # fmt: skip


def _line(key: str, value: object, why: str = "") -> str:
    line = f"{key} = {_toml(value)}"
    return f"{line:<{_COMMENT_COLUMN}}# {why}" if why else line


def _toml(value: object) -> str:
    """A TOML value. JSON's strings are TOML's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _amount(number: int) -> str:
    return f"{number / 1e6:.1f} M" if number >= 1e6 else f"{number:,}"
