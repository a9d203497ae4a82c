"""Texts in, as many translations out, in order, streamed in bounded memory.

    translator = Translator.load(Path("artifacts/average/0123456789abcdef"))
    for line in translator.translate(open("english.txt")):
        print(line.text)

Texts are read some hundred at a time, and cut into batches that depend on them alone.
"""

import dataclasses
import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from model.config import SearchConfig
from model.search import Hypothesis, length_penalty
from model.seeds import derive_seed
from pipeline.artifact import MANIFEST, Manifest
from pipeline.errors import ConfigError, CorpusError, InputError
from pipeline.pieces.tokenizer import Tokenizer
from pipeline.translating.bundle import CONFIG_FILE, Bundle, Precision, load_bundle
from pipeline.translating.ctranslate2_engine import Ctranslate2Engine, is_export
from pipeline.translating.decoding import Batch, Engine, Pending, TorchEngine, cut_batches
from pipeline.translating.export import Quantization, export_ctranslate2
from pipeline.translating.words import Alignment, Units, align_units, cut_points

LINES_AT_ONCE = 512
MAX_CHARS_AT_ONCE = 2**20

Overlong = Literal["split", "cut", "stop"]
EngineName = Literal["torch", "ctranslate2"]


@dataclass(frozen=True, slots=True)
class Options:
    """How texts are translated."""

    search: SearchConfig = dataclasses.field(default_factory=SearchConfig)
    """Beams, n-best, samples. `align_layer` 0 = the last layer but one, where `alignments` asks."""
    alignments: Units | None = None
    """Which units of source and translation are aligned: words between spaces, or pieces."""
    overlong: Overlong = "split"
    """Of a text longer than the model's positions: translate parts of it, cut at the end of a
    sentence where there is one, else of a word; cut off what is too much; or stop with an error."""
    prefix: str = ""
    """What every translation begins with."""
    tokens_per_batch: int | None = None
    """Source tokens per batch, padding included. None: what suits the device."""
    lines_at_once: int | None = None
    """Texts read ahead of translations. 1 answers each before it reads the next. None: what fills
    the device."""

    def __post_init__(self) -> None:
        for name in ("tokens_per_batch", "lines_at_once"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least 1, but is {value}.")


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation of a text."""

    text: str
    """In one line, words apart by single spaces."""
    score: float
    """`log_prob` divided by the length penalty: what translations are ranked by."""
    log_prob: float
    """In nats. Of a text in parts: their sum."""
    alignment: Alignment | None = None


@dataclass(frozen=True, slots=True)
class Translated:
    """One text with its translations, best first; a blank text has a blank one."""

    number: int
    """Of the text among all texts, from 1."""
    src: str
    translations: tuple[Translation, ...]
    num_parts: int = 1
    """How many parts it was too long to be translated without."""
    is_cut: bool = False
    """Whether its end was too much, and left out."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.translations[0].text


class Translator:
    """A model that translates texts."""

    def __init__(
        self, tokenizer: Tokenizer, make_engine: Callable[[], AbstractContextManager[Engine]]
    ) -> None:
        self._tokenizer, self._make_engine = tokenizer, make_engine

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        device: str = "auto",
        precision: Precision = "fp32",
        threads: int | None = None,
        engine: EngineName | None = None,
    ) -> "Translator":
        """The translator of a model's folder, of an artifact of `average`, or of an export.

        Args:
            folder: Of the model.
            device: `auto`, `cpu`, `cuda`, `cuda:1`, …
            precision: Number format of weights and products; an export has its own.
            threads: On a CPU: how many batches are searched at once. None: as torch is set.
            engine: What searches. None: CTranslate2 for an export, else torch.

        Raises:
            InputError: If there is no model, no such device, or no such engine.
        """
        folder = model_folder(folder)
        if is_export(folder) or engine == "ctranslate2":
            if engine == "torch":
                raise InputError(f"{folder} holds a model for CTranslate2: take that engine.")
            return cls._on_ctranslate2(folder, device, precision, threads)
        return cls.of(load_bundle(folder, device, precision), threads)

    @classmethod
    def _on_ctranslate2(
        cls, folder: Path, device: str, precision: Precision, threads: int | None
    ) -> "Translator":
        """Load an export, or a bundle by way of one that is removed again."""
        with tempfile.TemporaryDirectory() as temporary:
            if not is_export(folder):
                quantization: Quantization | None = "bfloat16" if precision == "bf16" else None
                export_ctranslate2(folder, Path(temporary), quantization)
                folder = Path(temporary)
            engine = Ctranslate2Engine(folder, device, threads)
            return cls(Tokenizer(folder), lambda: engine)

    @classmethod
    def of(cls, bundle: Bundle, threads: int | None = None) -> "Translator":
        """The translator of a loaded model."""
        return cls(bundle.tokenizer, lambda: TorchEngine(bundle.model, threads))

    def translate(
        self, texts: Iterable[str], options: Options | None = None
    ) -> Iterator[Translated]:
        """One result for each text, in order, while texts are read.

        Where reading fails, what was read before is translated before the error goes on.

        Raises:
            ConfigError: If the engine has not what `options` ask for, or the prefix is too long.
            CorpusError: At a text that is too long, if `options` say so.
        """
        with self._make_engine() as engine:
            job = _Job(self._tokenizer, engine, options or Options())
            for chunk in job.begin(texts):
                yield from job.finish(chunk)


def model_folder(folder: Path) -> Path:
    """Where the files of a model are: this folder, or the one that an artifact's manifest names.

    Raises:
        InputError: If it is neither.
    """
    if not (folder / CONFIG_FILE).is_file() and (folder / MANIFEST).is_file():
        try:
            folder /= Manifest.read(folder / MANIFEST).attempt
        except ValueError as error:
            raise InputError(f"{error}. Name the folder of a model.") from None
    if not (folder / CONFIG_FILE).is_file():
        raise InputError(f"{folder} must be a model's folder, but holds no {CONFIG_FILE}.")
    return folder


class _Line(NamedTuple):
    """A text that was read."""

    number: int
    """From 0."""
    src: str
    ids: Sequence[int]
    ends: Sequence[int]
    """Where its parts end in `ids`: one, unless it is too long."""
    is_cut: bool


class _Part(NamedTuple):
    """What is searched for as one sentence."""

    ids: Sequence[int]
    number: int
    is_first: bool


class _Chunk(NamedTuple):
    """Lines that are being translated."""

    lines: list[_Line]
    begun: list[tuple[list[int], Pending]]
    """Rows of each batch among the parts of all lines, and its result."""


class _Job:
    """One call of `translate`."""

    def __init__(self, tokenizer: Tokenizer, engine: Engine, options: Options) -> None:
        self._tokenizer, self._engine, self._options = tokenizer, engine, options
        self._search = _with_alignments(options, engine.align_layer)
        self._tokens = options.tokens_per_batch or engine.tokens_per_batch
        self._at_once = options.lines_at_once or max(LINES_AT_ONCE, engine.tokens_per_batch // 4)
        self._prefix = tokenizer.encode([options.prefix], "tgt")[0]

    def begin(self, texts: Iterable[str]) -> Iterator[_Chunk]:
        """Chunks under way; behind each, as many batches as keep all workers busy."""
        waiting: deque[_Chunk] = deque()
        try:
            for lines in self._read(texts):
                waiting.append(self._begin_chunk(lines))
                while self._is_enough_behind(waiting):
                    yield waiting.popleft()
        except Exception:
            yield from waiting  # what was read before is finished first
            raise
        yield from waiting

    def finish(self, chunk: _Chunk) -> Iterator[Translated]:
        """Wait for a chunk, and put its parts together."""
        found: list[list[Hypothesis]] = [[]] * sum(len(line.ends) for line in chunk.lines)
        for rows, wait in chunk.begun:
            for row, hypotheses in zip(rows, wait(), strict=True):
                found[row] = hypotheses
        ids = [hypothesis.ids for some in found for hypothesis in some]
        texts = iter([" ".join(text.split()) for text in self._tokenizer.decode(ids)])
        ranked = iter([[(h, next(texts)) for h in hypotheses] for hypotheses in found])
        for line in chunk.lines:
            parts = list(itertools.islice(ranked, len(line.ends)))
            translations = tuple(self._joined(line, parts)) if line.ids else (BLANK,)
            yield Translated(
                line.number + 1, line.src, translations, max(1, len(line.ends)), line.is_cut
            )

    def _read(self, texts: Iterable[str]) -> Iterator[list[_Line]]:
        number = 0
        for chunk in _chunks(texts, self._at_once):
            lines: list[_Line] = []
            for src, ids in zip(chunk, self._tokenizer.encode(chunk), strict=True):
                try:
                    lines.append(self._line(number, src, ids))
                except InputError:
                    yield lines
                    raise
                number += 1
            yield lines

    def _line(self, number: int, src: str, ids: Sequence[int]) -> _Line:
        most = self._engine.max_positions - 1
        self._check_prefix(number, len(ids))
        if len(ids) <= most:
            return _Line(number, src, ids, [len(ids)] if ids else [], is_cut=False)
        policy = self._options.overlong
        if policy == "stop":
            raise CorpusError(
                f"A text must have at most {most:,} pieces, the model's longest, but text "
                f"{number + 1:,} has {len(ids):,}. Shorten it, or let it be split or cut."
            )
        if policy == "cut":
            return _Line(number, src, ids[:most], [most], is_cut=True)
        ends = cut_points(self._tokenizer.names(ids, "src"), most)
        return _Line(number, src, ids, ends, is_cut=False)

    def _check_prefix(self, number: int, num_pieces: int) -> None:
        longest = min(num_pieces + 1 + self._search.max_extra_tokens, self._engine.max_positions)
        if num_pieces and len(self._prefix) > longest:
            raise ConfigError(
                f"A prefix must have at most as many pieces as its translation may have, but "
                f"{len(self._prefix)} are more than the {longest} of text {number + 1:,}."
            )

    def _begin_chunk(self, lines: list[_Line]) -> _Chunk:
        parts = [part for line in lines for part in _parts(line)]
        begun = []
        for rows in cut_batches([len(part.ids) + 1 for part in parts], self._tokens):
            some = [parts[row] for row in rows]
            prefixes = [self._prefix if part.is_first else () for part in some]
            batch = Batch(
                [part.ids for part in some],
                [part.number for part in some],
                prefixes if self._prefix else None,
            )
            begun.append((rows, self._engine.submit(batch, self._search)))
        return _Chunk(lines, begun)

    def _is_enough_behind(self, waiting: Sequence[_Chunk]) -> bool:
        if not waiting or self._at_once == 1:
            return bool(waiting)
        later = itertools.islice(waiting, 1, None)
        return sum(len(chunk.begun) for chunk in later) >= self._engine.num_workers

    def _joined(
        self, line: _Line, parts: Sequence[Sequence[tuple[Hypothesis, str]]]
    ) -> Iterator[Translation]:
        """The n-th translation of a text in parts joins the n-th of each part."""
        for some in zip(*parts, strict=False):  # a part may have fewer than another
            hypotheses = [hypothesis for hypothesis, _ in some]
            text = " ".join(text for _, text in some)
            log_prob = sum(hypothesis.log_prob for hypothesis in hypotheses)
            score = hypotheses[0].score
            if len(hypotheses) > 1:
                length = sum(len(hypothesis.ids) + 1 for hypothesis in hypotheses)
                score = log_prob / length_penalty(length, self._search.length_penalty)
            yield Translation(text, score, log_prob, self._alignment(line, hypotheses))

    def _alignment(self, line: _Line, hypotheses: Sequence[Hypothesis]) -> Alignment | None:
        units = self._options.alignments
        if units is None:
            return None
        src = self._tokenizer.names(line.ids, "src")
        starts = [0, *line.ends[:-1]]
        return align_units(
            units,
            [src[start:end] for start, end in zip(starts, line.ends, strict=True)],
            [self._tokenizer.names(hypothesis.ids, "tgt") for hypothesis in hypotheses],
            [hypothesis.alignment for hypothesis in hypotheses],
        )


BLANK = Translation("", 0.0, 0.0)


def _with_alignments(options: Options, align_layer: int) -> SearchConfig:
    if options.alignments is None or options.search.align_layer:
        return options.search
    if not align_layer:
        raise ConfigError("This engine gives no alignments: take the engine `torch`.")
    return dataclasses.replace(options.search, align_layer=align_layer)


def _parts(line: _Line) -> Iterator[_Part]:
    start = 0
    for place, end in enumerate(line.ends):
        number = line.number if place == 0 else derive_seed(line.number, place)
        yield _Part(line.ids[start:end], number, is_first=place == 0)
        start = end


def _chunks(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of up to `size` texts, of bounded size; those before an error come before the error."""
    chunk: list[str] = []
    num_chars = 0
    try:
        for text in texts:
            chunk.append(text)
            num_chars += len(text)
            if len(chunk) == size or num_chars >= MAX_CHARS_AT_ONCE:
                yield chunk
                chunk, num_chars = [], 0
    except Exception:
        yield chunk
        raise
    if chunk:
        yield chunk
