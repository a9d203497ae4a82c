"""RunConfig: everything a recipe may say, one section per stage.

Sections are frozen and refuse unknown keys. A field marked `Unkeyed` changes how fast or where work
is done, never what comes out, and stays out of fingerprints; so does the whole `[compute]` section.
"""

import re
from collections import Counter
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from model.config import ModelConfig, TrainConfig
from pipeline.section import AtLeastOne, Name, Section, Unkeyed
from pipeline.sources import Source

Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}([-_][A-Za-z0-9]+)*$")]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class DownloadConfig(Section):
    """Where the text comes from."""

    train: Annotated[list[Source], Field(min_length=1)]
    """Corpora to learn from, in order of priority: of duplicates the first one stays."""
    dev: list[Source] = []
    """Sets to watch the loss on while training; never cleaned."""
    test: list[Source] = []
    """Sets to score; never cleaned."""
    mirrors: Annotated[dict[str, str], Unkeyed] = {}
    """PREFIX = folder or address that serves what begins with PREFIX; checksums still hold."""

    @model_validator(mode="after")
    def _unique_names(self) -> "DownloadConfig":
        counts = Counter(source.name for source in (*self.train, *self.dev, *self.test))
        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            raise ValueError(f"source names must be unique, but {', '.join(twice)} is given twice")
        return self


Rule = Literal[
    "length",
    "ratio",
    "long_word",
    "letters",
    "copied",
    "numbers",
    "urls",
    "tags",
    "mojibake",
    "language",
]

CLEAN_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "fairseq-compat": {
        "punctuation": True,
        "max_word_ratio": 1.5,
        "max_char_ratio": 1_000.0,  # not looked at there
        "max_short_words": 0,
        "rules_off": [rule for rule in get_args(Rule) if rule != "ratio"],
    },
    "none": {"normalise": False, "rules_off": list(get_args(Rule))},
}
"""What each preset of cleaning says, before the recipe's own fields."""


class CleanConfig(Section):
    """Which pairs are kept, and how their text is normalised. Dev and test sets are never cleaned."""

    preset: Annotated[Literal["default", "fairseq-compat", "none"], Unkeyed] = "default"
    """Values of the fields that the recipe does not give: `default` as stated with each;
    `fairseq-compat` for comparison with published results (plain punctuation, word ratio at most 1.5,
    no other rule); `none` takes all pairs whose sides are not empty, as they are."""
    normalise: bool = True
    """NFC, control characters removed, HTML entities decoded, white space folded."""
    punctuation: bool = False
    """Quotation marks, dashes and ellipses made plain ASCII, as Moses does; training text only."""
    replace: list[tuple[str, str]] = []
    """Patterns (RE2) and what to put in the place of all they find, one after the other, on both
    sides of training text, after normalisation; `\\1` is what the first group found."""
    drop: list[str] = []
    """Patterns (RE2): a pair is dropped if one finds anything on either side."""
    min_words: AtLeastOne = 1
    """Fewest words a side."""
    max_words: AtLeastOne = 150
    """Most words a side; characters for scripts written without spaces."""
    max_chars: AtLeastOne = 1023
    """Most characters a side."""
    max_word_ratio: Annotated[float, Field(ge=1.0)] = 2.0
    """Most words of the longer side for each of the shorter."""
    max_char_ratio: Annotated[float, Field(ge=1.0)] = 3.0
    """Most characters of the longer side for each of the shorter."""
    max_short_words: Annotated[int, Field(ge=0)] = 4
    """Pairs with no more words on either side may have any ratio."""
    max_word_chars: Annotated[int, Field(ge=1, le=999)] = 60
    """Most characters of a word."""
    min_letter_words: Fraction = 0.4
    """Least share of words with a letter, a side."""
    min_letter_chars: Fraction = 0.5
    """Least share of letters among the characters of a side of more than 4 words."""
    min_copy_similarity: Fraction = 0.9
    """From this similarity of the two sides on, a pair of at least 4 words is a copy and dropped."""
    min_number_overlap: Annotated[float, Field(ge=0.0)] = 1.0
    """Least of (numbers that both sides have + 1) / (numbers that only one has + 1), where both have
    any in digits."""
    same_tags: bool = True
    """Whether pairs with the same HTML tags on both sides are kept, or none with HTML tags."""
    min_language_score: Fraction = 0.05
    """Least probability, by the model of languages, that a side of at least 3 words is in its
    language. Languages that it does not know are not checked."""
    rules_off: list[Rule] = []
    """Rules not applied. Pairs with an empty side are always dropped."""

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:  # noqa: ANN401 - whatever the recipe holds
        """Fill in what the preset says; an unknown one is told by its field."""
        if not isinstance(given, dict) or not isinstance(given.get("preset"), str):
            return given
        return CLEAN_PRESETS.get(given["preset"], {}) | given

    @field_validator("replace")
    @classmethod
    def _replacements_are_valid(cls, replace: list[tuple[str, str]]) -> list[tuple[str, str]]:
        for pattern, replacement in replace:
            _check_pattern(pattern, replacement)
        return replace

    @field_validator("drop")
    @classmethod
    def _drops_are_valid(cls, drop: list[str]) -> list[str]:
        for pattern in drop:
            _check_pattern(pattern)
            if not _needs_text(pattern):
                raise ValueError(
                    f"pattern `{pattern}` finds something in every text, and would drop all pairs"
                )
        return drop


class HoldoutConfig(Section):
    """Pairs taken out of the training text, for recipes without dev or test sets of their own.

    No side of one of them stays in the training text; one pair is taken of a source sentence.
    """

    dev: Annotated[int, Field(ge=0)] = 0
    """Pairs of the dev set `dev`."""
    test: Annotated[int, Field(ge=0)] = 0
    """Pairs of the test set `test`."""


class DedupConfig(Section):
    """Which pairs are dropped for being there already."""

    exact: bool = True
    """Of pairs equal on both sides only the first one stays."""
    near: bool = True
    """Of pairs whose sides both have the same letters and digits (case, accents' form, white space
    and punctuation aside) only the first one stays."""
    decontaminate: bool = True
    """No training pair keeps a side that equals one of a dev or test set (case, accents' form,
    white space and punctuation aside)."""
    min_overlap_chars: Annotated[int, Field(ge=0)] = 0
    """Sides with fewer letters and digits may be in a dev or test set too that the recipe names;
    those of a holdout never are."""
    holdout: HoldoutConfig = HoldoutConfig()
    """Dev and test sets to take out of the training text."""

    @model_validator(mode="after")
    def _near_includes_exact(self) -> "DedupConfig":
        if self.near and not self.exact:
            raise ValueError(
                "`dedup.near` must be false where `dedup.exact` is false, for equal pairs are "
                "near-duplicates too"
            )
        return self


NUM_MARKS = 4
NUM_BYTES = 256
PIECE_LIKE_A_MARK = re.compile(r"<(/?s|pad|unk|0x[0-9A-F]{2})>")
"""What SentencePiece calls its own pieces: for begin, end, padding, the unknown, and bytes."""


class VocabConfig(Section):
    """The SentencePiece vocabulary of both languages, or one of each."""

    joint: bool = True
    """Whether both languages share one vocabulary, and the model one table of embeddings (the
    paper); false = the source has its own of each."""
    kind: Literal["unigram", "bpe"] = "unigram"
    """How pieces are chosen."""
    size: Annotated[int, Field(ge=16, le=1_000_000)] = 32_000
    """Pieces of a vocabulary, the four special ones included."""
    tgt_size: Annotated[int, Field(ge=16, le=1_000_000)] | None = None
    """Pieces of the target's own vocabulary; none = `size`."""
    max_sentences: Annotated[int, Field(ge=1_000)] = 2_000_000
    """Most sentences a vocabulary is learnt from; of more, pairs are drawn by a hash of their place.
    SentencePiece holds them all: about 22 bytes a character for `unigram`, 5 for `bpe`."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 1.0
    """Share of the text's characters that get a piece; the others become unknown."""
    byte_fallback: bool = False
    """Whether characters without a piece become their UTF-8 bytes, 256 pieces more, and no text is
    unknown."""
    user_symbols: list[str] = []
    """Texts that are always one piece, wherever they stand; no spaces in them."""
    init_from: str | None = None
    """A model bundle whose vocabulary is taken as it is; none = a vocabulary is learnt."""

    @field_validator("user_symbols")
    @classmethod
    def _symbols_can_be_met(cls, symbols: list[str]) -> list[str]:
        for symbol in symbols:
            fault = _fault_of_symbol(symbol)
            if fault:
                raise ValueError(f"symbol `{symbol}` {fault}")
        twice = [symbol for symbol, count in Counter(symbols).items() if count > 1]
        if twice:
            raise ValueError(f"symbol `{twice[0]}` is given twice")
        return symbols

    @model_validator(mode="after")
    def _sizes_fit(self) -> "VocabConfig":
        if self.joint and self.tgt_size is not None:
            raise ValueError("`vocab.tgt_size` must be left out unless `vocab.joint` is false")
        fixed = NUM_MARKS + NUM_BYTES * self.byte_fallback + len(self.user_symbols)
        for name, size in (("size", self.size), ("tgt_size", self.tgt_size)):
            if size is not None and size <= fixed and not self.init_from:
                raise ValueError(
                    f"`vocab.{name}` must be above {fixed}, for so many pieces are marks, "
                    f"`vocab.user_symbols` and bytes (`vocab.byte_fallback`), but is {size}"
                )
        return self


class TokenizeConfig(Section):
    """Rows to piece ids."""

    max_pieces: AtLeastOne = 250
    """Longest side of a training or dev pair; longer pairs are counted and dropped."""
    rows_per_shard: AtLeastOne = 65_536
    """Rows of a shard of shuffled training pairs."""


class AverageConfig(Section):
    """Checkpoints to one model."""

    last: AtLeastOne = 5
    """How many of the last checkpoints are averaged (the paper: 5 for base, 20 for big)."""
    best: AtLeastOne | None = None
    """How many of the checkpoints with the lowest loss on the dev set are averaged, in place of the
    last; none = the last."""


BleuTokenizer = Literal[
    "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "none"
]


class EvaluateConfig(Section):
    """How test sets are translated and scored."""

    beam_size: AtLeastOne = 4
    """Hypotheses kept at each step; 1 is greedy."""
    length_penalty: Annotated[float, Field(ge=0.0)] = 0.6
    """Exponent alpha of the paper's length penalty ((5 + length) / 6) ** alpha."""
    max_extra_tokens: AtLeastOne = 50
    """A translation has at most this many pieces more than its source."""
    tokens_per_batch: Annotated[int, Field(ge=1), Unkeyed] = 4_096
    """Source tokens decoded at once, padding included: memory and speed, never the result."""
    bleu_tokenizer: BleuTokenizer = "auto"
    """sacreBLEU's tokenizer for BLEU; auto = what it prescribes for the target language: zh for
    Chinese, ja-mecab for Japanese, ko-mecab for Korean (the last two need the extras `ja` and `ko`),
    13a for all others."""
    paper_scores: list[Name] = []
    """Test sets that are newstest2014, scored also as the paper does (tokenised, German compounds
    split) and lowercased, as some later reports do."""
    comet: Annotated[str | None, Field(min_length=1)] = None
    """A COMET model to score with as well: its name, as Unbabel/wmt22-comet-da, or its .ckpt file.
    Needs the command `comet-score`, from unbabel-comet in an environment of its own."""
    every_checkpoint: bool = False
    """Whether each checkpoint that `train` kept is scored too, for a curve of BLEU over steps."""


class Reservation(Section):
    """What each Ray task of a stage, or each training worker, holds of a machine while it works."""

    num_cpus: AtLeastOne | None = None
    """None = 1; of a training worker, its threads."""
    memory_gib: Annotated[float, Field(ge=0)] = 0.0
    """Ray counts it when it places a task, and enforces nothing; 0 = not counted."""
    custom: dict[Name, Annotated[float, Field(gt=0)]] = {}
    """Other resources, by the names that nodes were started with: `ray start --resources`."""

    @field_validator("custom")
    @classmethod
    def _names_are_not_rays_own(cls, custom: dict[str, float]) -> dict[str, float]:
        own = {"CPU": "num_cpus", "GPU": None, "memory": "memory_gib", "object_store_memory": None}
        for name in custom:
            if name in own:
                instead = f": say `{own[name]}` instead" if own[name] else ""
                raise ValueError(f"must not name Ray's own `{name}`{instead}")
        return custom


class StageResources(Section):
    """Of the stages whose work Ray spreads."""

    clean: Reservation = Reservation()
    dedup: Reservation = Reservation()
    tokenize: Reservation = Reservation()
    train: Reservation = Reservation()
    evaluate: Reservation = Reservation()

    def of(self, stage: str) -> Reservation:
        """Of a stage by its name."""
        found: Reservation = getattr(self, stage, Reservation())
        return found


class ComputeConfig(Section):
    """Where and how wide the work runs: speed only, never part of a fingerprint."""

    num_workers: AtLeastOne | Literal["auto"] | tuple[AtLeastOne, AtLeastOne] = "auto"
    """Training workers, a power of two; auto = as many as the cluster allows when training begins;
    [1, 8] = from 1 to 8, as machines come and go."""
    threads_per_worker: AtLeastOne = 1
    """CPU threads of each training worker. Results are the same bits for the same number."""
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    """What trains: each worker has a GPU or none; auto = GPUs where the cluster has any."""
    resources: StageResources = StageResources()
    """What tasks and workers reserve of the cluster's machines."""
    log_every_steps: AtLeastOne = 50
    """Training steps between two entries of the event file."""


class RunConfig(Section):
    """A recipe, resolved."""

    name: Name
    """Names the recipe's runs."""
    src: Language
    """Source language code, e.g. en."""
    tgt: Language
    """Target language code, e.g. de."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Seed of initialisation, data order and dropout."""
    root: Annotated[str | None, Unkeyed] = None
    """Folder of all artifacts; `--root` and TRADUKO_ROOT come first."""
    download: DownloadConfig
    clean: CleanConfig = CleanConfig()
    dedup: DedupConfig = DedupConfig()
    vocab: VocabConfig = VocabConfig()
    tokenize: TokenizeConfig = TokenizeConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    average: AverageConfig = AverageConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    compute: ComputeConfig = ComputeConfig()

    @field_validator("download")
    @classmethod
    def _sources_know_their_languages(
        cls, download: DownloadConfig, info: ValidationInfo
    ) -> DownloadConfig:
        languages = [info.data.get(side) for side in ("src", "tgt")]
        if None in languages:  # told as an error of their own
            return download
        kinds = {
            kind: [source.of_languages(*languages) for source in getattr(download, kind)]
            for kind in ("train", "dev", "test")
        }
        return download.model_copy(update=kinds)

    @model_validator(mode="after")
    def _holdout_is_needed(self) -> "RunConfig":
        held_out = {kind for kind in ("dev", "test") if getattr(self.dedup.holdout, kind)}
        for kind in sorted(held_out):
            if getattr(self.download, kind):
                raise ValueError(
                    f"`dedup.holdout.{kind}` must be 0 where `download.{kind}` names a set"
                )
        for source in (*self.download.dev, *self.download.test):
            if source.name in held_out:
                raise ValueError(
                    f"a source must not be named {source.name}, for `dedup.holdout` makes a set of "
                    "that name"
                )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> "RunConfig":
        longest = self.tokenize.max_pieces + 1
        for limit, name in (
            (self.train.tokens_per_micro_batch, "train.tokens_per_micro_batch"),
            (self.model.max_positions, "model.max_positions"),
        ):
            if longest > limit:
                raise ValueError(
                    f"`tokenize.max_pieces` + 1 must be at most `{name}` ({limit}), but is {longest}"
                )
        return self

    @model_validator(mode="after")
    def _checkpoints_are_kept(self) -> "RunConfig":
        best = self.average.best
        if best is None and self.average.last > self.train.keep_checkpoints:
            raise ValueError(
                "`average.last` must be at most `train.keep_checkpoints` "
                f"({self.train.keep_checkpoints}), but is {self.average.last}"
            )
        if best and best > self.train.keep_best_checkpoints:
            raise ValueError(
                "`average.best` must be at most `train.keep_best_checkpoints` "
                f"({self.train.keep_best_checkpoints}), but is {best}"
            )
        if best and not (self.download.dev or self.dedup.holdout.dev):
            raise ValueError(
                "`average.best` needs a dev set: name one in `download.dev`, or hold pairs out with "
                "`dedup.holdout.dev`"
            )
        return self

    @model_validator(mode="after")
    def _paper_scores_name_sets(self) -> "RunConfig":
        names = [source.name for source in self.download.test]
        unknown = [name for name in self.evaluate.paper_scores if name not in names]
        if unknown:
            raise ValueError(
                f"`evaluate.paper_scores` must name sets of `download.test` "
                f"({', '.join(names) or 'there is none'}), but names {unknown[0]}"
            )
        return self

    @model_validator(mode="after")
    def _workers_fit(self) -> "RunConfig":
        workers, most = self.compute.num_workers, self.train.micro_batches_per_step
        if isinstance(workers, int) and most % workers:
            raise ValueError(
                f"`compute.num_workers` must divide `train.micro_batches_per_step` ({most}), "
                f"but is {workers}"
            )
        if isinstance(workers, tuple) and not workers[0] <= workers[1] <= most:
            raise ValueError(
                "`compute.num_workers` must be [least, most], and `most` at most "
                f"`train.micro_batches_per_step` ({most}), but is {list(workers)}"
            )
        return self


def _fault_of_symbol(symbol: str) -> str | None:
    """Why text would never hold a symbol as its piece, or would hold it as a mark."""
    from pipeline.text import normalise  # noqa: PLC0415 - few recipes need what it loads

    if not symbol or any(char.isspace() for char in symbol):
        return "must hold no space, and not be empty"
    if PIECE_LIKE_A_MARK.fullmatch(symbol):
        return "must not be one of the vocabulary's own marks"
    if normalise(symbol) != symbol:
        return f"must be as normalised text is: `{normalise(symbol)}`"
    return None


def _check_pattern(pattern: str, replacement: str = "") -> None:
    from pipeline.cleaning.patterns import fault_of  # noqa: PLC0415 - few recipes need what it loads

    fault = fault_of(pattern, replacement)
    if fault:
        raise ValueError(f"pattern `{pattern}` is no pattern of RE2: {fault}")


def _needs_text(pattern: str) -> bool:
    from pipeline.cleaning.patterns import needs_text  # noqa: PLC0415 - likewise

    return needs_text(pattern)
