"""TMX, the exchange format of translation memories: XML, read as a stream.

Nothing is fetched and nothing expanded: a document that declares anything in a DTD is refused, and
a reference to what is not declared ends the reading. (A DOCTYPE that only names TMX's public DTD, as
many tools write it, declares nothing.) Encodings are those that XML declares.

A unit gives its first text in each of the two languages. Codes are compared without case, the whole
code before the language alone: `de` finds `de-DE`, and `pt-BR` prefers `pt-BR` to `pt`. A unit
without one of the languages is left out and counted. Inline codes (`bpt`, `ph` …) are no text.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from pipeline.errors import ConfigError, CorpusError
from pipeline.reading.faults import Chunk
from pipeline.reading.lines import MAX_LINE_BYTES, File, blocks
from pipeline.reading.markup import one_line
from pipeline.sources import Layout

_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Elements whose content is formatting of the tool that wrote them."""

_MAX_DEPTH = 64
_MAX_LANGUAGES_NAMED = 20


def read_tmx(file: File, layout: Layout, batch_rows: int) -> Iterator[Chunk]:
    """The pairs of a TMX file; `line` is the number of the translation unit, from 1.

    Raises:
        CorpusError: If it is no well-formed XML, declares entities, or has no unit in both languages.
    """
    if layout.columns is None:
        raise ConfigError("`columns` must name the two languages of a TMX file, as in a recipe.")
    src, tgt = (str(column) for column in layout.columns)
    units = _Units(file.name, src, tgt)
    num_pairs = 0
    for block in blocks(file, any_encoding=True):
        units.feed(block)
        for chunk in units.take(batch_rows):
            num_pairs += len(chunk.line)
            yield chunk
    units.close()
    for chunk in units.take(batch_rows):
        num_pairs += len(chunk.line)
        yield chunk
    if not num_pairs:
        there = ", ".join(sorted(units.languages)) or "none"
        raise CorpusError(
            f"`{file.name}` must hold translation units in `{src}` and `{tgt}`, but none of its "
            f"{units.num_units} is in both (its languages: {there}). Set `columns`."
        )


class _Pair(NamedTuple):
    src: str
    tgt: str
    unit: int


class _Units:
    """Collects pairs from the parser's events."""

    def __init__(self, name: str, src: str, tgt: str) -> None:
        self.num_units = 0
        self.languages: set[str] = set()
        self._name = name
        self._fits = _Fits(src, tgt)
        self._pairs: list[_Pair] = []
        self._num_left_out = 0
        self._depth = self._codes_depth = 0
        self._language = ""
        self._text: list[str] | None = None  # of the segment that is open
        self._text_chars = 0
        self._best: list[tuple[int, str]] = []  # by side: how well its language fits, its text
        self._num_fed = 0
        self._parser = self._made_parser()

    def feed(self, block: bytes) -> None:
        """Parse on."""
        self._parse(block, is_last=False)
        self._num_fed += len(block)
        if self._num_fed - self._parser.CurrentByteIndex > MAX_LINE_BYTES:
            raise self._refused(f"must have tags of at most {MAX_LINE_BYTES:,} bytes")

    def close(self) -> None:
        """The document must end here."""
        self._parse(b"", is_last=True)

    def take(self, batch_rows: int) -> Iterator[Chunk]:
        """What was collected since."""
        if self._num_left_out:
            nothing = pa.array([], pa.string())
            left_out = {"other_languages": self._num_left_out}
            yield Chunk(nothing, nothing, np.zeros(0, dtype=np.int64), left_out=left_out)
            self._num_left_out = 0
        for start in range(0, len(self._pairs), batch_rows):
            src, tgt, unit = zip(*self._pairs[start : start + batch_rows], strict=True)
            line = np.array(unit, dtype=np.int64)
            yield Chunk(pa.array(src, pa.string()), pa.array(tgt, pa.string()), line)
        self._pairs.clear()

    def _made_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._refuse_entity
        return parser

    def _parse(self, data: bytes, *, is_last: bool) -> None:
        try:
            self._parser.Parse(data, is_last)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, "unknown")
            raise self._refused(f"must be well-formed XML, but is not ({reason})") from None
        except (LookupError, ValueError) as error:  # an encoding that Python does not know
            raise self._refused(f"must be in a known encoding, but is not ({error})") from None

    def _refused(self, reason: str) -> CorpusError:
        parser = self._parser
        line, column = parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
        return CorpusError(
            f"`{self._name}` {reason}: line {line}, column {column}, after {self.num_units} "
            "translation units. Mend it, or export it again."
        )

    def _doctype(self, _name: str, _system: object, _public: object, has_subset: bool) -> None:
        if has_subset:
            raise self._refused("must be TMX without declarations in a DTD, but has some")

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise self._refused(f"must be TMX without entities of its own, but has `{name}`")

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refused(f"must have at most {_MAX_DEPTH} elements inside each other")
        if self._text is not None:
            self._codes_depth += bool(self._codes_depth or tag in _CODES)
        elif tag == "tu":
            self.num_units += 1
            self._best = [(0, ""), (0, "")]
        elif tag == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
            if len(self.languages) < _MAX_LANGUAGES_NAMED:
                self.languages.add(self._language[:_MAX_LANGUAGES_NAMED])
        elif tag == "seg" and self._best:
            self._text, self._text_chars = [], 0

    def _data(self, data: str) -> None:
        if self._text is None or self._codes_depth:
            return
        self._text.append(data)
        self._text_chars += len(data)
        if self._text_chars > MAX_LINE_BYTES:
            raise self._refused(f"must have texts of at most {MAX_LINE_BYTES:,} characters")

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._text is not None:
            self._end_in_segment(tag)
        elif tag == "tuv":
            self._language = ""
        elif tag == "tu":
            self._end_unit()

    def _end_in_segment(self, tag: str) -> None:
        if self._codes_depth:
            self._codes_depth -= 1
        elif tag == "seg":
            assert self._text is not None
            text = one_line("".join(self._text))
            self._text = None
            for side, fit in enumerate(self._fits.of(self._language)):
                if fit > self._best[side][0]:
                    self._best[side] = fit, text

    def _end_unit(self) -> None:
        (src_fit, src), (tgt_fit, tgt) = self._best
        self._best = []
        if src_fit and tgt_fit:
            self._pairs.append(_Pair(src, tgt, self.num_units))
        else:
            self._num_left_out += 1


class _Fits:
    """How well codes fit the two languages: 0 not, 1 by the language alone, 2 whole."""

    def __init__(self, src: str, tgt: str) -> None:
        self._wanted = (_parts(src), _parts(tgt))
        self._known: dict[str, tuple[int, int]] = {}

    def of(self, code: str) -> tuple[int, int]:
        if code not in self._known:
            if len(self._known) >= _MAX_LANGUAGES_NAMED:
                self._known.clear()
            src, tgt = self._wanted
            # Where both sides are of one language, as Chinese in two scripts, it tells nothing.
            alone = int(src[0] != tgt[0])
            found = _parts(code)
            fits = [
                2 if found == wanted else alone * (found[0] == wanted[0]) for wanted in (src, tgt)
            ]
            self._known[code] = (fits[0], fits[1])
        return self._known[code]


def _parts(code: str) -> list[str]:
    return code.strip().lower().replace("_", "-").split("-")
