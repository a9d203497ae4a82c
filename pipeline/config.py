"""RunConfig: everything a recipe may say, one section per stage.

Sections are frozen and refuse unknown keys. A field marked `Unkeyed` changes how fast or where work
is done, never what comes out, and stays out of fingerprints; so does the whole `[compute]` section.
"""

from collections import Counter
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from model.config import ModelConfig, TrainConfig

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}([-_][A-Za-z0-9]+)*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]

Format = Literal["text", "ted", "sgm", "tsv", "jsonl", "parquet", "tmx", "po", "mo"]

FORMATS: dict[str, Format] = {
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".tmx": "tmx",
    ".po": "po",
    ".mo": "mo",
}
"""Formats of files that hold both sides, by the ending of their name."""

FORMATS_OF_SIDES: dict[str, Format] = {".sgm": "sgm", ".sgml": "sgm", ".xml": "sgm"}
"""Formats of two aligned files, by the ending of their names; any other ending is text."""

PACKED_ENDINGS = (".gz", ".bz2", ".xz", ".zst")
"""Endings that say nothing about what is inside."""


class Unkeyed:
    """Marks a field that does not determine a result."""


class Section(BaseModel):
    """A part of a recipe."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class FileSource(Section):
    """One side of a parallel corpus: a local file or an address."""

    path: str | None = None
    """A local file, plain or packed; relative to the recipe that names it."""
    url: str | None = None
    """An address: http, https or file."""
    sha256: Sha256 | None = None
    """What the file's bytes must hash to. Without it, what an address gives at first is trusted, and
    pinned in `traduko.lock`."""
    md5: Annotated[Md5 | None, Unkeyed] = None
    """Another digest that it must have, for files published with that alone."""
    bytes: Annotated[Index | None, Unkeyed] = None
    """How large it must be, checked before it is downloaded."""
    member: Annotated[str | None, Field(min_length=1)] = None
    """If it is an archive (tar, plain or packed, or zip), the file in it: a path in which `*`, `?` and
    `[…]` match within one part. `outer.tgz!train.en` is a file in an archive in the archive. Digests
    and size are those of the archive."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the recipe holds
        """Take a bare string for an address or a path."""
        if not isinstance(value, str):
            return value
        return {"url": value} if "://" in value else {"path": value}

    @model_validator(mode="after")
    def _one_place(self) -> "FileSource":
        if (self.path is None) == (self.url is None):
            raise ValueError("exactly one of `path` and `url` must be given")
        if self.url and "@" in self.url.partition("://")[2].partition("/")[0]:
            raise ValueError("`url` must hold no user name or password: they would be recorded")
        return self

    @field_validator("member")
    @classmethod
    def _member_is_a_path(cls, member: str | None) -> str | None:
        for path in member.split("!") if member else ():
            if not path or path[0] == "/" or path[-1] == "/" or ".." in path.split("/"):
                raise ValueError(
                    "`member` must be a file's path in an archive, as `training/europarl.en` or "
                    f"`outer.tgz!train.en`, but is `{member}`"
                )
        return member

    @property
    def address(self) -> str:
        """Where the bytes are."""
        return self.url or self.path or ""

    @property
    def file_path(self) -> str:
        """The path whose ending tells what the text is in: of the member, or else of the address."""
        return self.member.rpartition("!")[2] if self.member else self.address.partition("?")[0]


class Layout(Section):
    """How files hold both sides of a corpus, and what becomes of rows that are no pairs."""

    format: Format
    """What the one file of both sides is, or the two."""
    columns: tuple[Index, Index] | tuple[str, str] | None = None
    """Where the source and the target side are: numbers from 0 (TSV), keys (JSONL), names of columns
    (Parquet) or language codes (TMX); none for other formats."""
    header: bool = False
    """Whether the first line of a TSV file names its columns and is no pair."""
    on_bad_rows: Literal["stop", "reject"] = "stop"
    """Whether rows that are no pairs end the reading, or are left out and counted."""

    @model_validator(mode="after")
    def _fits_together(self) -> "Layout":
        example = _COLUMNS.get(self.format)
        if self.columns and not example:
            raise ValueError(f"`columns` goes with {', '.join(_COLUMNS)}, not with {self.format}")
        if self.columns and example:
            self._check_columns(self.columns, example)
        if self.header and self.format != "tsv":
            raise ValueError("`header` goes with TSV files only")
        return self

    def _check_columns(
        self, columns: tuple[object, object], example: tuple[object, object]
    ) -> None:
        if type(columns[0]) is not type(example[0]):
            shown = "[0, 1]" if self.format == "tsv" else f'["{example[0]}", "{example[1]}"]'
            raise ValueError(
                f"`columns` of a {self.format} file must be like {shown}, but is {list(columns)}"
            )
        if columns[0] == columns[1]:
            raise ValueError(f"`columns` must be two, but is {list(columns)}")


# By format: columns that a recipe need not name, but for TMX, where they are the recipe's languages.
_COLUMNS: dict[Format, tuple[int, int] | tuple[str, str]] = {
    "tsv": (0, 1),
    "jsonl": ("src", "tgt"),
    "parquet": ("src", "tgt"),
    "tmx": ("en", "de"),
}


class BuiltinSource(Section):
    """Text made by Traduko itself, with no network: the English-German grammar corpus."""

    corpus: Literal["quickstart"] = "quickstart"
    """Which built-in corpus."""
    split: str
    """train, dev, test, test_comp, test_num or test_long."""
    num_train: AtLeastOne = 50_000
    """Pairs in the train split; the others hold 1,000 each."""


class Source(Section):
    """One parallel corpus: a name, and its two sides, one file of both, or a built-in split."""

    name: Name
    """Names its artifacts, its rows and its scores: unique in a recipe."""
    src: FileSource | None = None
    """The source-language side, one sentence a line."""
    tgt: FileSource | None = None
    """The target-language side, line by line the translation of `src`."""
    pairs: FileSource | None = None
    """Both sides in one file (TSV, JSONL, Parquet, TMX, PO, MO), in place of `src` and `tgt`."""
    format: Format | None = None
    """What the files are; none = told from their ending, packed or not: .tsv, .jsonl, .parquet,
    .tmx, .po or .mo of `pairs`; .sgm or .xml of `src` and `tgt`, which else are text. `ted` is text
    with lines of metadata, as IWSLT's train.tags files."""
    columns: tuple[Index, Index] | tuple[str, str] | None = None
    """Where the sides are in `pairs`; none = columns 0 and 1 (TSV), keys or columns `src` and `tgt`
    (JSONL, Parquet), the recipe's languages (TMX)."""
    header: bool = False
    """Whether the first line of a TSV file names its columns and is no pair."""
    on_bad_rows: Literal["stop", "reject"] = "stop"
    """Rows that are no pairs of texts (not UTF-8, a column missing, …): `stop` names them and ends;
    `reject` leaves them out on both sides, counted and kept beside the text."""
    builtin: BuiltinSource | None = None
    """A built-in corpus, in place of `src` and `tgt`."""
    num_rows: Annotated[int | None, Unkeyed] = None
    """How many pairs it must hold; none = not checked."""
    licence: Annotated[str | None, Unkeyed] = None
    """The corpus's licence, for people to read."""
    citation: Annotated[str | None, Unkeyed] = None
    """What to cite when the corpus is used, for people to read."""

    @model_validator(mode="after")
    def _one_kind(self) -> "Source":
        files = (self.src is not None, self.tgt is not None)
        others = (self.pairs is not None) + (self.builtin is not None)
        if not others and not all(files):
            raise ValueError("`src` and `tgt` must both be given, or `builtin`, or `pairs`")
        if others and (any(files) or others > 1):
            raise ValueError("`builtin` and `pairs` each go without `src`, `tgt` and the other")
        if self.pairs is None and (self.columns or self.header):
            raise ValueError("`columns` and `header` go with `pairs` only")
        if self.builtin and (self.format or self.on_bad_rows != "stop"):
            raise ValueError("`format` and `on_bad_rows` do not go with `builtin`")
        _ = self.layout  # says at once what does not fit together
        return self

    @property
    def layout(self) -> Layout | None:
        """How the files hold both sides, resolved; none for text to read line by line, or stop."""
        if self.builtin:
            return None
        kind = self.format or self._told_by_names()
        if (kind in _FORMATS_OF_TWO_FILES) == (self.pairs is not None):
            raise ValueError(
                f"`format` {kind} goes with "
                f"{'`src` and `tgt`' if kind in _FORMATS_OF_TWO_FILES else '`pairs`'}"
            )
        if kind == "text" and self.on_bad_rows == "stop":
            return None
        columns = self.columns or (None if kind == "tmx" else _COLUMNS.get(kind))
        return Layout(
            format=kind, columns=columns, header=self.header, on_bad_rows=self.on_bad_rows
        )

    @model_validator(mode="after")
    def _one_archive(self) -> "Source":
        if self.src and self.tgt and self.src.address == self.tgt.address:
            src, tgt = (file.model_copy(update={"member": None}) for file in (self.src, self.tgt))
            if src != tgt:
                raise ValueError(
                    "`src` and `tgt` name one file, and must say the same of it (`sha256`, `md5`, "
                    "`bytes`)"
                )
        return self

    @property
    def files(self) -> dict[str, FileSource]:
        """Its files by place: `src` and `tgt`, or `pairs`; none of a built-in corpus."""
        places = {"src": self.src, "tgt": self.tgt, "pairs": self.pairs}
        return {place: file for place, file in places.items() if file}

    def of_languages(self, src: str, tgt: str) -> "Source":
        """The same source in a recipe of these languages: they choose the sides of a TMX file."""
        if self.layout and self.layout.format == "tmx" and not self.columns:
            return self.model_copy(update={"columns": (src, tgt)})
        return self

    def _told_by_names(self) -> Format:
        if self.pairs:
            return _format_of(self.pairs.file_path)
        assert self.src
        assert self.tgt
        kinds = {
            FORMATS_OF_SIDES.get(ending(file.file_path), "text") for file in (self.src, self.tgt)
        }
        if len(kinds) > 1:
            raise ValueError("`format` must be given, for the endings of `src` and `tgt` tell two")
        return kinds.pop()


_FORMATS_OF_TWO_FILES = ("text", "ted", "sgm")


def ending(file_path: str) -> str:
    """What the end of a file's name tells about what is inside, in lower case: `.tsv`."""
    path = PurePosixPath(file_path)
    while path.suffix.lower() in PACKED_ENDINGS:
        path = path.with_suffix("")
    return path.suffix.lower()


def _format_of(file_path: str) -> Format:
    """The format of a file of both sides, told by its ending.

    Raises:
        ValueError: If it tells none.
    """
    kind = FORMATS.get(ending(file_path))
    if kind is None:
        name = PurePosixPath(file_path).name
        raise ValueError(
            f"`format` must be given, for the name of {name} tells none of {', '.join(FORMATS)}"
        )
    return kind


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
    decontaminate: bool = True
    """No training pair keeps a side that equals one of a dev or test set (case, accents' form,
    white space and punctuation aside)."""
    holdout: HoldoutConfig = HoldoutConfig()
    """Dev and test sets to take out of the training text."""


class VocabConfig(Section):
    """The joint SentencePiece vocabulary of both languages."""

    kind: Literal["unigram", "bpe"] = "unigram"
    """How pieces are chosen."""
    size: Annotated[int, Field(ge=16, le=1_000_000)] = 32_000
    """Pieces, the four special ones included."""
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 1.0
    """Share of the text's characters that get a piece; the others become unknown."""
    init_from: str | None = None
    """A model bundle whose vocabulary is taken as it is; none = a vocabulary is learnt."""


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


class EvaluateConfig(Section):
    """How test sets are translated."""

    beam_size: AtLeastOne = 4
    """Hypotheses kept at each step; 1 is greedy."""
    length_penalty: Annotated[float, Field(ge=0.0)] = 0.6
    """Exponent alpha of the paper's length penalty ((5 + length) / 6) ** alpha."""
    max_extra_tokens: AtLeastOne = 50
    """A translation has at most this many pieces more than its source."""
    tokens_per_batch: Annotated[int, Field(ge=1), Unkeyed] = 4_096
    """Source tokens decoded at once, padding included: memory and speed, never the result."""


class ComputeConfig(Section):
    """Where and how wide the work runs: speed only, never part of a fingerprint."""

    num_workers: AtLeastOne | Literal["auto"] | tuple[AtLeastOne, AtLeastOne] = "auto"
    """Training workers, a power of two; auto = as many as the cluster allows when training begins;
    [1, 8] = from 1 to 8, as machines come and go."""
    threads_per_worker: AtLeastOne = 1
    """CPU threads of each training worker. Results are the same bits for the same number."""
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    """What trains: each worker has a GPU or none; auto = GPUs where the cluster has any."""
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
        if self.average.last > self.train.keep_checkpoints:
            raise ValueError(
                "`average.last` must be at most `train.keep_checkpoints` "
                f"({self.train.keep_checkpoints}), but is {self.average.last}"
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


def _check_pattern(pattern: str, replacement: str = "") -> None:
    from pipeline.patterns import fault_of  # noqa: PLC0415 - few recipes need what it loads

    fault = fault_of(pattern, replacement)
    if fault:
        raise ValueError(f"pattern `{pattern}` is no pattern of RE2: {fault}")


def _needs_text(pattern: str) -> bool:
    from pipeline.patterns import needs_text  # noqa: PLC0415 - likewise

    return needs_text(pattern)


def keyed(config: BaseModel, *, defaults: bool = False) -> dict[str, Any]:
    """The fields that determine a result, as JSON values.

    Fields at their default are left out unless `defaults`, so that a new field invalidates nothing.
    """
    values = config.model_dump(mode="json", exclude_defaults=not defaults)
    _drop_unkeyed(config, values)
    return values


def _drop_unkeyed(config: BaseModel, values: dict[str, Any]) -> None:
    """Take out the fields that do not count, and the sections that they leave empty."""
    for name in list(values):
        section = getattr(config, name)
        if isinstance(section, BaseModel):
            _drop_unkeyed(section, values[name])
        if Unkeyed in type(config).model_fields[name].metadata or values[name] == {}:
            del values[name]
