"""JSONL: every line is an object of two texts, or told by its number."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import CorpusError
from pipeline.reading import jsonl
from pipeline.reading.faults import Faults
from pipeline.reading.formats import read_files
from pipeline.sources import Layout

JSONL = Layout(format="jsonl", columns=("src", "tgt"))
ENGLISH_GERMAN = Layout(format="jsonl", columns=("en", "de"))
PAIR = {"src": "a", "tgt": "b"}
GOOD = json.dumps(PAIR)


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "corpus.jsonl"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def rows(path, layout=JSONL, faults=None):
    table = pa.Table.from_batches(list(read_files([path], layout, faults=faults)))
    return list(zip(*(table[name].to_pylist() for name in ("src", "tgt", "line")), strict=True))


def pairs(path, layout=JSONL):
    return [row[:2] for row in rows(path, layout)]


def test_keys_are_taken_by_name_and_others_left(write):
    path = write('{"id": [1, {"a": 2}], "de": "x", "en": "y"}\n {"en":"","de":"\\u00fc\\/"} \n')
    assert pairs(path, ENGLISH_GERMAN) == [("y", "x"), ("", "ü/")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", r"line 2 is no JSON \(Expecting value, character 1\)"),
        ("null", r"line 2 is no JSON object"),
        ("[1]", r"line 2 is no JSON object"),
        ('"src"', r"line 2 is no JSON object"),
        ("{}", r"line 2 has no `src` \(its keys: none\)"),
        ('{"src": "a", "de": "b"}', r"line 2 has no `tgt` \(its keys: `src`, `de`\)"),
        ('{"src": "a", "tgt": null}', r"line 2 has a `tgt` that is no text"),
        ('{"src": "a", "tgt": 5}', r"line 2 has a `tgt` that is no text"),
        ('{"src": "a", "tgt": ["b"]}', r"line 2 has a `tgt` that is no text"),
        ('{"src": "a", "tgt": "b", "src": "a"}', r"line 2 has `src` twice"),
        ('{"src": "a", "tgt": "\\ud83d"}', r"line 2 has half of a surrogate pair in `tgt`"),
        ('{"src": "a", "tgt": "b"', r"line 2 is no JSON \(Expecting ',' delimiter"),
        ('{"src": "a", "tgt": "b",}', r"line 2 is no JSON"),
        (f"{GOOD} {GOOD}", r"line 2 is no JSON \(Extra data"),
        (f"{GOOD},{GOOD}", r"line 2 is no JSON \(Extra data"),
        (f'{GOOD}, "z": {{"q": 1}}', r"line 2 is no JSON \(Extra data"),
        (f"{GOOD}]", r"line 2 is no JSON \(Extra data"),
        ('{"src": "a\tb", "tgt": "b"}', r"line 2 is no JSON \(Invalid control character"),
        ("[" * 100_000, r"line 2 is nested too deeply"),
    ],
)
def test_a_line_that_is_no_object_of_texts_is_refused(write, line, message):
    path = write(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(CorpusError, match=message):
        rows(path)


def test_an_object_over_two_lines_is_refused(write):
    two_in_one = f"{GOOD}{GOOD}\n"
    path = write('{"src": "a",\n"tgt": "b"}\n' + two_in_one)
    with pytest.raises(CorpusError, match=r"line 1 is no JSON.*line 2 is.*line 3 is no JSON"):
        rows(path)


def test_bad_lines_can_be_left_out(write):
    faults = Faults("reject")
    path = write(f'{GOOD}\n{{"src": 1}}\n'.encode() + b'{"src": "\xff"}\n' + f"{GOOD}\n".encode())
    layout = Layout(format="jsonl", columns=("src", "tgt"), on_bad_rows="reject")
    assert rows(path, layout, faults) == [("a", "b", 1), ("a", "b", 4)]
    assert faults.rejected == {"json": 1, "encoding": 1}


FRAGMENTS = (
    GOOD, "{", "}", "[", "]", '"src"', '"x"', ":", ",", "null", "1", " ", "\\", "}\n{", "\n", "\x00",
    '"tgt":"b"', '{"src":"', '"}', "\\ud83d", "\\u00e4", '"', "NaN", "0", '},"z":{', "]}", "]},",
    '{"row":[', '],"z":[', ']}{"row":[',
)  # fmt: skip
made_up = st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("".join)
edited = st.tuples(
    st.integers(0, len(GOOD)), st.integers(0, 3), st.sampled_from(("", *FRAGMENTS))
).map(lambda edit: GOOD[: edit[0]] + edit[2] + GOOD[edit[0] + edit[1] :])


@settings(max_examples=400)
@given(st.lists(st.one_of(made_up, edited), min_size=1, max_size=2))
def test_the_fast_parser_takes_no_line_that_the_careful_one_refuses(texts):
    lines = pa.array([GOOD, *"\n".join(texts).split("\n"), GOOD], pa.string())
    fast = jsonl._parse_at_once(lines, ["src", "tgt"])
    if fast is not None:
        careful = [jsonl._json_pair(line, ["src", "tgt"]) for line in lines.to_pylist()]
        assert [(row["src"], row["tgt"]) for row in fast.to_pylist()] == careful


@pytest.mark.parametrize(
    "line",
    [
        GOOD + ']} {"row":[' + GOOD,
        GOOD + '],"row":[' + GOOD,
        GOOD + "," + GOOD,
        GOOD + '],"z":[{"src":"a"}',
    ],
)
def test_a_line_that_closes_the_brackets_around_it_is_no_pair(write, line):
    assert jsonl._parse_at_once(pa.array([line, GOOD]), ["src", "tgt"]) is None
    with pytest.raises(CorpusError, match=r"line 1 is no JSON \(Extra data"):
        rows(write(f"{line}\n"))


def test_the_fast_parser_takes_ordinary_lines():
    """Objects beside the texts too; lists of objects before another key go to the careful one."""
    lines = pa.array([GOOD, '{"id": {"a": 1}, "tgt": "\\u00e4\\ud83d\\ude00", "src": "x"}'])
    assert jsonl._parse_at_once(lines, ["src", "tgt"])[1].as_py() == {"src": "x", "tgt": "ä😀"}
    lines = pa.array([GOOD, '{"id": [{"a": 1}], "tgt": "ä", "src": "x"}'])
    assert jsonl._parse_at_once(lines, ["src", "tgt"]) is None
