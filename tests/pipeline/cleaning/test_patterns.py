"""Replacing by pattern."""

import pyarrow as pa
import pytest

from pipeline.cleaning.patterns import PUNCTUATION, fault_of, needs_text, replace_all


def replaced(text, *replacements):
    return replace_all(pa.array([text, "x"]), replacements)[0].as_py()


def test_replacements_follow_each_other():
    assert replaced("aab", ("a", "b"), ("bb+", "c")) == "c"
    assert replaced("12 kg", (r"(\d+) (kg)", r"\2 \1")) == "kg 12"
    assert replaced("as it is") == "as it is"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("„Ja“, sagte sie ‚leise‘.", "\"Ja\", sagte sie 'leise'."),
        ("« Oui », dit-elle", '"Oui", dit-elle'),
        ("it’s — well–known…", "it's - well-known..."),
        ("a( b )c , 5 % ; ja ?", "a (b) c , 5%; ja?"),
        ("(end) .", "(end)."),
        ('plain - text (so) it\'s "fine".', 'plain - text (so) it\'s "fine".'),
    ],
)
def test_punctuation_becomes_plain(text, expected):
    assert replaced(text, *PUNCTUATION) == expected
    assert replaced(expected, *PUNCTUATION) == expected


@pytest.mark.parametrize(
    ("pattern", "replacement", "fault"),
    [
        ("a+", "b", None),
        ("(a)", r"\1", None),
        ("[", "", "missing ]"),
        ("(?=a)", "", "invalid perl operator"),
        ("a{2000}", "", "invalid repetition size"),
        ("a", r"\1", "requests 1 matches"),
        ("a", "\\", "not allowed at end"),
    ],
)
def test_faults_are_told(pattern, replacement, fault):
    told = fault_of(pattern, replacement)
    assert told is None if fault is None else fault in told


@pytest.mark.parametrize(
    ("pattern", "needs"), [("a", True), ("a*", False), ("^", False), (".", True)]
)
def test_a_pattern_that_needs_no_text_is_told(pattern, needs):
    assert needs_text(pattern) is needs
