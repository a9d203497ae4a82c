"""Where a corpus is, and how its files hold it: the sources of a recipe."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pipeline.section import AtLeastOne, Name, Section, Sha256, Unkeyed

Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
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
