"""Text found and replaced by pattern, in whole columns.

Patterns are those of RE2, which reads a text once, however the pattern is built: no recipe can
make cleaning hang. It knows no look-around and no back references inside of a pattern.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

PUNCTUATION = (
    ("« +| +»", '"'),
    ("''|``|´´|[„“”‟«»《》]", '"'),
    ("[‘’‚‛`´]", "'"),
    (" ?— ?", " - "),
    ("–", "-"),
    ("…", "..."),
    (r"\(", " ("),
    (r"\)", ") "),
    (r"\( +", "("),
    (r" +\)", ")"),
    (r"\) +([.!:?;,])", r")\1"),
    (r" +([:;?!])", r"\1"),
    (r"([0-9]) +%", r"\1%"),
    ("  +", " "),
    ("^ | $", ""),
)
"""Plain punctuation, as Moses' normalize-punctuation makes it: quotation marks, apostrophes, dashes
and ellipses of ASCII, no space inside of brackets nor before `:;?!` and a number's `%`. Unlike there,
commas and points stay on their side of a quotation mark, and digits are not regrouped."""


def replace_all(texts: pa.StringArray, replacements: Iterable[tuple[str, str]]) -> pa.StringArray:
    r"""Replaces, one after the other, all that each pattern finds; `\1` is its first group."""
    for pattern, replacement in replacements:
        texts = pc.replace_substring_regex(texts, pattern, replacement)
    return texts


def fault_of(pattern: str, replacement: str = "") -> str | None:
    """What is wrong with a pattern and its replacement; None if nothing is."""
    try:
        replace_all(pa.array([""], pa.string()), [(pattern, replacement)])
    except pa.ArrowInvalid as error:
        return str(error).removeprefix("Invalid regular expression: ")
    return None


def needs_text(pattern: str) -> bool:
    """Whether a pattern finds nothing in an empty text; one that does finds itself in every text."""
    found = pc.match_substring_regex(pa.array([""], pa.string()), pattern)
    return not found[0].as_py()
