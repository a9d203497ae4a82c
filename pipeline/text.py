"""What a sentence looks like once it is in the pipeline: one normal form, and one key for matching.

Cleaning rule 1 has two steps. `unescape_entities` decodes one level of HTML entities; what was
escaped twice stays escaped once, so this step is not idempotent and belongs to the import of raw
text. `normalise` is idempotent, and is what every sentence goes through, at inference too.

Nothing here depends on a library's Unicode tables but Python's own: a result changes only with
`UNICODE_VERSION`.
"""

import html
import re
import unicodedata
from html.entities import html5
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

UNICODE_VERSION = unicodedata.unidata_version
"""The Unicode data that shapes normalised text and keys; part of the fingerprint of `clean`."""

# Characters that normalisation never changes, alone or next to each other: not white, not removed,
# canonical combining class 0, never the second half of a composition. A superset of what most text
# in most languages holds; the rest takes the slower way, with the same result.
SETTLED = (
    "\u0021-\u007e\u00a1-\u00ac\u00ae-\u02ff"  # Latin, IPA
    "\u0388-\u03ff\u0400-\u0482\u048a-\u052f"  # Greek, Cyrillic
    "\u05d0-\u05ea\u0621-\u064a\u0660-\u0669"  # Hebrew, Arabic
    "\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2190-\u2328\u232b-\u2580\u2582-\u27ff"  # signs
    "\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff"  # kana, Han
    "\uac00-\ud7a3\uff01-\uff5e\ufe0e\ufe0f\U0001f300-\U0001faff"  # Hangul, full width, emoji
)
"""The inside of a character class."""
# The same pattern for Python's `re` and Arrow's RE2.
_UNSETTLED_PATTERN = f"[^ {SETTLED}]|^ | $|  "
_UNSETTLED = re.compile(_UNSETTLED_PATTERN)

# The semicolon is required: `&copy=1` in an address is no entity.
_ENTITY_PATTERN = "&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_ENTITY = re.compile(_ENTITY_PATTERN)

# Blank on paper, yet no space to Unicode: Braille blank, Hangul fillers. And SentencePiece's own
# mark for a space, which it could not tell from a real one.
_BLANKS = frozenset("\u2800\u3164\uffa0\u2581")
# Format characters that are part of the text: ZWNJ and ZWJ (Persian, Indic scripts, emoji), and
# the visible signs that enclose Arabic, Syriac and Kaithi numbers.
_KEPT_FORMATS = frozenset(
    "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2"
    "\U000110bd\U000110cd"
)
_TAG_BLOCK = range(0xE0020, 0xE0080)
_TAGS = "\U000e0020-\U000e007e"
# A flag such as Scotland's is a black flag, tags that spell the region, and an end tag. Tags
# anywhere else are text that nobody sees.
_FLAG_OR_TAG = re.compile(f"(\U0001f3f4[{_TAGS}]+\U000e007f)|[{_TAGS}\U000e007f]")
# A joiner joins to what stands before it; after a space or at the start it is only invisible.
_STRAY_JOINER = re.compile("(?<!\\S)[\u200c\u200d]+")

_NEITHER_LETTER_NOR_DIGIT = re.compile(r"[\W_]+")
_NO_LETTER = re.compile(r"[\W\d_]+")


def normalise(text: str) -> str:
    """Brings a sentence into its normal form, which stays as it is when normalised again.

    NFC. Every white space, line separator, blank and U+2581 becomes a space; runs become one, ends
    none. Control characters, format characters, private use, noncharacters and surrogates are
    removed; ZWJ and ZWNJ stay where they follow a visible character, so emoji stay whole.
    Unassigned code points stay: to a newer Unicode they may be letters. The result may be empty,
    and can always be written as UTF-8.
    """
    if _UNSETTLED.search(text) is None:
        return text
    text = _FLAG_OR_TAG.sub(r"\1", text.translate(_FATES))
    text = _STRAY_JOINER.sub("", text)
    return unicodedata.normalize("NFC", " ".join(text.split()))


def unescape_entities(text: str) -> str:
    """Decodes one level of HTML entities: `&amp;` to `&`, `&amp;lt;` to `&lt;`.

    An entity that has no name in HTML 5 or no valid code point stays as it is written, and so does
    a bare `&`.
    """
    return _ENTITY.sub(_decoded, text) if "&" in text else text


def normalise_column(column: pa.Array | pa.ChunkedArray, entities: bool = True) -> pa.Array:
    """Normalises strings (no nulls), `entities` also unescaping one level first, as rule 1 does.

    Most rows are settled already: Arrow finds them, and they are never unpacked.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    pattern = f"{_UNSETTLED_PATTERN}|{_ENTITY_PATTERN}" if entities else _UNSETTLED_PATTERN
    is_unsettled = pc.match_substring_regex(column, pattern)
    rows = column.filter(is_unsettled).to_pylist()
    if not rows:
        return column
    if entities:
        rows = [unescape_entities(row) for row in rows]
    settled = pa.array([normalise(row) for row in rows], type=column.type)
    return pc.replace_with_mask(column, is_unsettled, settled)


def match_key(text: str) -> str:
    """A key under which sentences count as the same: for duplicates and overlap.

    Case folded, NFKC, letters and digits only (with the marks that follow them: vowel signs are
    Unicode marks). A text with neither is its own key, so only an empty text has an empty key.
    """
    key = _NEITHER_LETTER_NOR_DIGIT.sub(_marks, _folded(text))
    return unicodedata.normalize("NFKC", key) or text  # what has come together may compose


def letters(text: str) -> str:
    """The case-folded letters of a text, with their marks; empty where it has none."""
    return _NO_LETTER.sub(_marks, _folded(text))


class _Fates(dict[int, int | str | None]):
    """What `str.translate` does with a code point, worked out when it is first met."""

    def __missing__(self, code: int) -> int | str | None:
        fate = self[code] = _fate(code)
        return fate


_FATES = _Fates()


def _fate(code: int) -> int | str | None:
    character = chr(code)
    if character.isspace() or character in _BLANKS:
        return " "
    if character in _KEPT_FORMATS or code in _TAG_BLOCK:  # tags: judged later, in their place
        return code
    is_noncharacter = code & 0xFFFE == 0xFFFE or code in range(0xFDD0, 0xFDF0)
    is_removed = unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs") or is_noncharacter
    return None if is_removed else code


def _decoded(entity: re.Match[str]) -> str:
    written = entity[0]
    if not written.startswith("&#"):
        return html5.get(written[1:], written)
    character = html.unescape(written)
    return written if character in ("", "\ufffd") else character


def _folded(text: str) -> str:
    # Folding can undo a composition, hence NFKC twice; on what is normalised it costs next to none.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded)


def _marks(run: re.Match[str]) -> str:
    """Of a run of non-letters, the marks that belong to the letter before it."""
    if run.start() == 0 or run[0].isascii():
        return ""
    return "".join(takewhile(_is_mark, run[0]))


def _is_mark(character: str) -> bool:
    is_variation_selector = "\ufe00" <= character <= "\ufe0f"
    return unicodedata.category(character)[0] == "M" and not is_variation_selector
