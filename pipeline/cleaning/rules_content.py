"""Cleaning rules of content: patterns, letters, numbers, addresses, markup, encodings, languages."""

import re
import unicodedata
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.cleaning.characters import count_kinds, digits
from pipeline.cleaning.language_id import is_known, likely_languages, names_of
from pipeline.cleaning.rules_parameters import RuleParameters

_MAX_SHORT_WORDS = 4  # "Ctrl+F5", "(1) 5 kg": few letters, and nothing wrong
_MIN_LANGUAGE_WORDS = 3  # "Berlin Hauptbahnhof" may be of any language

# Digits in groups of three are one number, also those a space apart: once it was a no-break one.
_GROUPED_DIGITS = re.compile(r"(?<![\d.,])\d{1,3}([.,'’ ])\d{3}(?:\1\d{3})*(?!\d)")
_TWELVE_HOURS = re.compile(
    r"\b(?P<hour>1[0-2]|0?[1-9])(?P<minutes>(?:[:.][0-5]\d)?) ?(?P<half>[apAP])\.? ?[mM]\b"
)
_NO_DIGIT = re.compile(r"\D+")
_DIGITS = re.compile(r"\d+")

_ADDRESS_PATTERN = r"(?i)://|www\."
_HOST = re.compile(r"(?:://(?:www\.)?|\bwww\.)([\w-]*(?:\.[\w-]+)*)")

_HTML_NAMES = (
    "a|abbr|acronym|address|area|article|aside|audio|b|base|bdi|bdo|big|blockquote|body|br|button|"
    "caption|center|cite|code|col|colgroup|dd|del|dfn|dir|div|dl|dt|em|embed|fieldset|figcaption|"
    "figure|font|footer|form|frame|frameset|h[1-6]|head|header|hr|html|i|iframe|img|input|ins|kbd|"
    "label|legend|li|link|main|map|mark|meta|nav|noscript|object|ol|optgroup|option|p|param|"
    "picture|pre|q|rp|rt|ruby|s|samp|script|section|select|small|source|span|strike|strong|style|"
    "sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|title|tr|track|tt|u|"
    "ul|var|video|wbr"
)
_TAG_PATTERN = rf"(?i)</?(?:{_HTML_NAMES})(?:\s[^<>]*)?/?>|<!--"
_TAG_NAME = re.compile(rf"(?i)<(/?(?:{_HTML_NAMES}))(?:\s[^<>]*)?/?>|<!--")

# What a reader of Latin-1 or Windows-1252 makes of a later byte of UTF-8; without the quotes and
# dashes among them, which rightly follow a capital letter.
_LATER_BYTES = "\u0192\u02c6\u02dc\u2020\u2021\u2030\u20ac\u2122\xa1-\xaa\xac\xae-\xb3\xb5\xb6\xb8-\xba\xbc-\xbe"
_MOJIBAKE = f"\ufffd|â€|ï»¿|[ÃÂÐÑ][{_LATER_BYTES}]"
# Where the first byte's sign is no letter of the language, it needs no second: that may be gone.
_USE_A_TILDE = frozenset({"gn", "kea", "mwl", "pt", "vi"})
_USE_A_CIRCUMFLEX = frozenset(
    {"az", "br", "crh", "cy", "fr", "frp", "fy", "gag", "hr", "it", "ku", "la", "li", "lmo", "mwl"}
    | {"nl", "oc", "pcd", "pms", "pt", "rm", "ro", "rup", "smn", "sr", "tr", "vi", "wa"}
)


def drop(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs in whose sides none of the recipe's patterns finds anything."""
    found = pa.array([False] * batch.num_rows, pa.bool_())
    for pattern in parameters.drop:
        found = pc.or_(found, _either_matches(batch, pattern))
    return pc.invert(found)


def letters(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides are mostly words with letters, and letters.

    A side of at most 4 words may have any share of letters, as "Ctrl+F5" has.
    """
    src, tgt = (_has_letters(batch[side], parameters) for side in ("src", "tgt"))
    return pc.and_(src, tgt)


def numbers(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose numbers are about the same, and pairs with a side that has no digit.

    A number is a run of decimal digits, of any script, without leading zeros and separators of
    thousands: 1,000.5 and 1.000,5 and 1000,5 are all {1000, 5}. Each counts once a side; 2:30 p.m.
    may be 14:30. One side without digits is no sign of harm: it spells them out.
    """
    pattern = f"[{digits()}]"
    src, tgt = (pc.match_substring_regex(batch[side], pattern) for side in ("src", "tgt"))

    def agree(src: str, tgt: str) -> bool:
        return sorted(_DIGITS.findall(src)) == sorted(_DIGITS.findall(tgt)) or any(
            len(one & other) + 1 >= parameters.min_number_overlap * (len(one ^ other) + 1)
            for one in _numbers_of(src)
            for other in _numbers_of(tgt)
        )

    return _all_but(batch, pc.and_(src, tgt), agree)


def urls(batch: pa.RecordBatch, _: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose addresses lead to the same hosts, and pairs with a side without addresses.

    Only hosts are compared, without `www.`: what follows them is often translated.
    """
    src, tgt = (pc.match_substring_regex(batch[side], _ADDRESS_PATTERN) for side in ("src", "tgt"))
    return _all_but(batch, pc.and_(src, tgt), lambda src, tgt: _hosts_of(src) == _hosts_of(tgt))


def tags(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs without HTML tags, and pairs that have the same ones on both sides.

    Only names of HTML elements make a tag: `<file name>` is text. Attributes are not compared.
    """
    found = _either_matches(batch, _TAG_PATTERN)
    if not parameters.same_tags:
        return pc.invert(found)
    return _all_but(batch, found, lambda src, tgt: _tags_of(src) == _tags_of(tgt))


def mojibake(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs without signs of UTF-8 that was read as Latin-1 or Windows-1252: "TÃ¼r".

    `Ã` and `Â` are signs by themselves, but for languages that are written with them.
    """
    harmless = [
        pc.invert(pc.match_substring_regex(batch[side], _mojibake_pattern(language)))
        for side, language in parameters.languages
    ]
    return pc.and_(*harmless)


def language(batch: pa.RecordBatch, parameters: RuleParameters) -> pa.BooleanArray:
    """Keeps pairs whose sides of at least 3 words with a letter may each be in their language.

    A side whose language the model does not know is kept.
    """
    floor = parameters.min_language_score
    src, tgt = (_may_be(batch[side], code, floor) for side, code in parameters.languages)
    return pc.and_(src, tgt)


def _either_matches(batch: pa.RecordBatch, pattern: str) -> pa.BooleanArray:
    return pc.or_(*(pc.match_substring_regex(batch[side], pattern) for side in ("src", "tgt")))


def _all_but(
    batch: pa.RecordBatch, is_suspect: pa.BooleanArray, is_right: Callable[[str, str], bool]
) -> pa.BooleanArray:
    """Keeps all rows but the suspects that are not right: they are few, and looked at one by one."""
    suspects = batch.filter(is_suspect)
    sides = zip(suspects["src"].to_pylist(), suspects["tgt"].to_pylist(), strict=True)
    right = pa.array([is_right(src, tgt) for src, tgt in sides], pa.bool_())
    return pc.replace_with_mask(pc.invert(is_suspect), is_suspect, right)


def _has_letters(texts: pa.StringArray, parameters: RuleParameters) -> pa.BooleanArray:
    counts = count_kinds(texts)
    in_words = counts.letter_words >= parameters.min_letter_words * np.maximum(counts.words, 1)
    in_chars = counts.letters >= parameters.min_letter_chars * counts.chars
    return pa.array(in_words & (in_chars | (counts.words <= _MAX_SHORT_WORDS)))


def _numbers_of(text: str) -> list[set[str]]:
    """The numbers of a text, and, if they are others, those with its times on a clock of 24 hours."""
    readings = [text, _TWELVE_HOURS.sub(_of_24_hours, text)]
    wholes = (_GROUPED_DIGITS.sub(_without_separators, each) for each in dict.fromkeys(readings))
    return [{_in_ascii(run).lstrip("0") or "0" for run in _DIGITS.findall(each)} for each in wholes]


def _of_24_hours(time: re.Match[str]) -> str:
    hour = int(time["hour"]) % 12 + (12 if time["half"] in "pP" else 0)
    return f"{hour}{time['minutes']}"


def _without_separators(number: re.Match[str]) -> str:
    return _NO_DIGIT.sub("", number[0])


def _in_ascii(run: str) -> str:
    return run if run.isascii() else "".join(str(unicodedata.decimal(digit)) for digit in run)


def _hosts_of(text: str) -> set[str]:
    return set(_HOST.findall(text.casefold()))


def _tags_of(text: str) -> list[str]:
    return sorted(name.lower() for name in _TAG_NAME.findall(text))


def _mojibake_pattern(language: str) -> str:
    code = language.replace("_", "-").partition("-")[0]
    tilde = "" if code in _USE_A_TILDE else "|Ã"
    circumflex = "" if code in _USE_A_CIRCUMFLEX else "|Â"
    return _MOJIBAKE + tilde + circumflex


def _may_be(texts: pa.StringArray, code: str, min_score: float) -> pa.BooleanArray:
    every = pa.array([True] * len(texts), pa.bool_())
    if min_score == 0 or not is_known(code):
        return every
    wanted = names_of(code)
    is_judged = pa.array(count_kinds(texts).letter_words >= _MIN_LANGUAGE_WORDS)
    found = likely_languages(texts.filter(is_judged).to_pylist(), min_score)
    right = pa.array([not wanted.isdisjoint(each) for each in found], pa.bool_())
    return pc.replace_with_mask(every, is_judged, right)
