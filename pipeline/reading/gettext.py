r"""Gettext's message catalogues: PO, its text form, and MO, its compiled form.

The source side is the message (`msgid`), the target side its translation (`msgstr`). No pairs, left
out and counted, are: the header, what is not translated, not checked (fuzzy) or not used any more
(obsolete), and messages with a plural, whose first translated form is the singular in some languages
and not in others. Texts may hold line breaks (`\n`), as they do in the program.

A PO file is read as a stream. An MO file is an index over itself, and is held whole.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.errors import CorpusError
from pipeline.reading.faults import MAX_RAW_BYTES, Chunk, Fault
from pipeline.reading.lines import MAX_LINE_BYTES, File, blocks, read_lines, utf8_fault

MAX_MO_BYTES = 256 * 2**20
"""A larger MO file is refused. The largest known ones have some 10 MB."""

_KEYWORD = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)?\s*"(.*)"$')
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.)|$)")
_ESCAPED = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
    "\\": "\\", '"': '"', "'": "'", "?": "?",
}  # fmt: skip
_CHARSET = re.compile(r"^Content-Type:.*charset=([\w-]+)", re.IGNORECASE | re.MULTILINE)
_KNOWN_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "charset"})
_MO_MAGIC = 0x950412DE
_MO_HEADER_BYTES = 28


def read_po(file: File, batch_rows: int) -> Iterator[Chunk]:
    """The pairs of a PO file; `line` is that of `msgid`. A text not in UTF-8 is a fault.

    Raises:
        CorpusError: as `read_lines`; or a line is none of a PO file's, or it is in another encoding.
    """
    made = _Made(file.name)
    entry = _Entry()
    for lines in read_lines(file, batch_rows):
        faults = {fault.line: fault for fault in lines.faults}
        for number, text in enumerate(lines.texts.to_pylist(), start=lines.first):
            stripped = text.strip()
            if entry.is_over(stripped):
                made.add(entry)
                entry = _Entry()
            _read_line(entry, stripped, number, faults.get(number), file.name)
        yield from made.take(batch_rows)
    made.add(entry)
    yield from made.take(batch_rows)


def read_mo(file: File, batch_rows: int) -> Iterator[Chunk]:
    """The pairs of an MO file; `line` is the number of the message, from 1.

    Raises:
        CorpusError: If it is no whole MO file, too large, or in another encoding.
    """
    content = _whole(file)
    made = _Made(file.name)
    tables = _mo_tables(content, file.name)
    for number, (at, length, to, to_length) in enumerate(tables.tolist(), start=1):
        entry = _Entry(line=number, unit="message")
        for name, start, size in (("msgid", at, length), ("msgstr", to, to_length)):
            raw = content[start : start + size]
            entry.fault = entry.fault or utf8_fault(raw, file.name, number, start, "message")
            entry.texts[name] = "" if entry.fault else raw.decode()
        context, separator, message = entry.texts["msgid"].partition("\x04")
        if separator:
            entry.texts |= {"msgctxt": context, "msgid": message}
        entry.has_plural = "\0" in entry.texts["msgid"]
        made.add(entry)
        if number % batch_rows == 0:
            yield from made.take(batch_rows)
    yield from made.take(batch_rows)


@dataclass
class _Entry:
    """One message, as far as it has been read."""

    texts: dict[str, str] = field(default_factory=dict)
    line: int = 0
    unit: str = "line"
    keyword: str = ""
    is_fuzzy: bool = False
    is_obsolete: bool = False
    has_plural: bool = False
    fault: Fault | None = None

    def is_over(self, text: str) -> bool:
        """Whether a line begins the next message."""
        if not any(name.startswith("msgstr") for name in self.texts):
            return False
        text = text.removeprefix("#~").lstrip()
        return text.startswith(("#", "msgctxt", "msgid ", 'msgid"'))

    @property
    def is_whole(self) -> bool:
        """Whether there is a message and a translation, be they empty."""
        return "msgid" in self.texts and any(name.startswith("msgstr") for name in self.texts)

    @property
    def left_out(self) -> str | None:
        """Why this is not meant to be a pair."""
        reasons = {
            "obsolete": self.is_obsolete,
            "header": not self.texts.get("msgid") and "msgctxt" not in self.texts,
            "plural": self.has_plural,
            "fuzzy": self.is_fuzzy,
            "untranslated": not self.texts.get("msgstr"),
        }
        return next((reason for reason, holds in reasons.items() if holds), None)


class _Made:
    """Rows of messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[tuple[str, str, int]] = []
        self._faults: list[Fault] = []
        self._left_out: Counter[str] = Counter()

    def add(self, entry: _Entry) -> None:
        """Take a message that is complete, or was never begun."""
        if not entry.texts:
            return
        if entry.fault:
            self._faults.append(entry.fault._replace(line=entry.line))
            self._rows.append(("", "", entry.line))
            return
        if not entry.is_whole:
            raise CorpusError(
                f"`{self._name}` must have `msgid` and `msgstr` in each message, but the one at "
                f"line {entry.line} lacks one. Mend it (`msgfmt --check` says more)."
            )
        reason = entry.left_out
        if reason == "header":
            self._check_charset(entry.texts.get("msgstr", ""))
        if reason:
            self._left_out[reason] += 1
        else:
            self._rows.append((entry.texts["msgid"], entry.texts["msgstr"], entry.line))

    def take(self, batch_rows: int) -> Iterator[Chunk]:
        """What was added since."""
        faults, left_out = self._faults, dict(self._left_out)
        for start in range(0, max(1, len(self._rows)), batch_rows):
            rows = self._rows[start : start + batch_rows]
            src, tgt = (pa.array([row[side] for row in rows], pa.string()) for side in (0, 1))
            line = np.array([row[2] for row in rows], dtype=np.int64)
            lines = set(line.tolist())
            yield Chunk(src, tgt, line, [f for f in faults if f.line in lines], left_out)
            left_out = {}
        self._rows, self._faults, self._left_out = [], [], Counter()

    def _check_charset(self, header: str) -> None:
        found = _CHARSET.search(header)
        if found and found[1].lower() not in _KNOWN_CHARSETS:
            raise CorpusError(
                f"`{self._name}` must be in UTF-8, but says that it is in {found[1]}. Convert it "
                "(`msgconv -t UTF-8`)."
            )


def _read_line(entry: _Entry, text: str, number: int, fault: Fault | None, name: str) -> None:
    if fault:
        _read_faulty(entry, number, fault)
        return
    if text.startswith("#~"):
        entry.is_obsolete = True
        text = "" if text.startswith("#~|") else text[2:].lstrip()
    if text.startswith("#,"):
        entry.is_fuzzy |= "fuzzy" in re.split(r"[,\s]+", text)
    if text and not text.startswith("#"):
        _read_text(entry, text, number, name)


def _read_text(entry: _Entry, text: str, number: int, name: str) -> None:
    """A keyword with its text, or more text of the last one."""
    match = _KEYWORD.match(text)
    keyword = match[1] or entry.keyword if match else ""
    if not match or not keyword or (match[1] and match[1] in entry.texts):
        raise CorpusError(
            f"`{name}` must be a PO file, but line {number} is none of its lines: {text[:80]!a}. "
            "Mend it (`msgfmt --check` says more)."
        )
    entry.keyword = keyword
    if match[1] == "msgid" or not entry.line:
        entry.line = number
    entry.has_plural |= keyword == "msgid_plural"
    part = ""
    try:
        part = _unescaped(match[2])
    except ValueError as error:
        raw = text.encode()[:MAX_RAW_BYTES]
        entry.fault = entry.fault or Fault(name, number, None, "escape", str(error), raw)
    entry.texts[keyword] = _grown(entry.texts.get(keyword, ""), part, name, number)


def _read_faulty(entry: _Entry, number: int, fault: Fault) -> None:
    """A line that is not UTF-8: of a comment it does no harm, of a text it is the message's fault."""
    raw = fault.raw.lstrip()
    if raw.startswith(b"#"):
        return
    entry.fault = entry.fault or fault
    if found := re.match(rb"msg(?:ctxt|id_plural|id|str(?:\[\d+\])?)", raw):
        entry.keyword = found[0].decode()
        entry.texts.setdefault(entry.keyword, "")
    if entry.keyword == "msgid" or not entry.line:
        entry.line = number


def _grown(text: str, part: str, name: str, number: int) -> str:
    if len(text) + len(part) > MAX_LINE_BYTES:
        raise CorpusError(
            f"`{name}`, line {number}: a text must have at most {MAX_LINE_BYTES:,} characters, but "
            "this one is longer. Check that it is a PO file."
        )
    return text + part


def _unescaped(text: str) -> str:
    r"""A text without its backslashes.

    Raises:
        ValueError: If one stands for nothing, or for a byte that is no ASCII character.
    """
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(escape: re.Match[str]) -> str:
    octal, hexadecimal, letter = escape.groups()
    if octal or hexadecimal:
        code = int(octal, 8) if octal else int(hexadecimal, 16)
        if code < 128:
            return chr(code)
    elif letter in _ESCAPED:
        return _ESCAPED[letter]
    raise ValueError(f"has an escape that stands for no character ({escape[0]!a})")


def _whole(file: File) -> bytes:
    parts, size = [], 0
    for block in blocks(file, any_encoding=True):
        parts.append(block)
        size += len(block)
        if size > MAX_MO_BYTES:
            raise CorpusError(
                f"`{file.name}` must have at most {MAX_MO_BYTES:,} bytes as an MO file, but has "
                "more. Give its PO file."
            )
    return b"".join(parts)


def _mo_tables(content: bytes, name: str) -> npt.NDArray[np.int64]:
    """Of each message: where it and its translation are, and how long: at, length, at, length."""
    order = next((c for c in "<>" if content[:4] == struct.pack(f"{c}I", _MO_MAGIC)), None)
    if order is None or len(content) < _MO_HEADER_BYTES:
        raise _no_mo(name, "does not begin as one")
    _, _, number, at, to = struct.unpack_from(f"{order}5I", content)
    if max(at, to) + 8 * number > len(content):
        raise _no_mo(name, "ends in the middle")
    tables = [
        np.frombuffer(content, dtype=f"{order}u4", count=2 * number, offset=start)
        .reshape(-1, 2)[:, ::-1]
        .astype(np.int64)
        for start in (at, to)
    ]
    places = np.concatenate(tables, axis=1)
    starts, lengths = places[:, ::2], places[:, 1::2]
    if (starts + lengths > len(content)).any() or lengths.sum() > len(content):
        raise _no_mo(name, "has texts that overlap or reach past its end")
    return places


def _no_mo(name: str, reason: str) -> CorpusError:
    return CorpusError(
        f"`{name}` must be a whole MO file, but {reason}. Copy it again, or give its PO file."
    )
