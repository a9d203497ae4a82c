import json

import pytest

from pipeline.errors import CorpusError, InputError
from pipeline.scoring.compare import Rows, System, compare, read_evaluated, read_files
from pipeline.scoring.metrics import Kind

REFERENCES = [f"the {a} sees the {b} today" for a in ("man", "dog", "cat") for b in "abcdefgh"]
WORSE = [text.replace("sees", "hears") if at % 2 else text for at, text in enumerate(REFERENCES)]


def system(name, hypotheses, references=REFERENCES, sources=None, test="test", tokenizer="13a"):
    return System(name, tokenizer, "en", {test: Rows(sources, references, hypotheses)})


def test_a_better_system_has_a_small_p_value_and_equal_ones_have_1():
    systems = [system("a", WORSE), system("b", REFERENCES), system("c", WORSE)]
    found = compare(systems, 2)["sets"]["test"]
    assert found["sentences"] == len(REFERENCES)
    for name, metric in found["metrics"].items():
        assert metric["label"]
        assert metric["signature"].startswith("nrefs:1|bs:1000|seed:12345|")
        baseline, better, same = metric["systems"]
        assert (baseline["system"], better["system"], same["system"]) == ("a", "b", "c")
        assert (better["difference"] < 0) == (name == "ter")
        assert max(better["p_bootstrap"], better["p_randomisation"]) < 0.01
        assert (same["difference"], same["p_bootstrap"], same["p_randomisation"]) == (0, 1, 1)


def test_the_sentences_that_differ_most_come_first():
    other = [*REFERENCES]
    other[3], other[7] = "x", "the man sees"
    found = compare([system("a", REFERENCES, sources=REFERENCES), system("b", other)], 5)
    differ = found["sets"]["test"]["differ_most"]
    assert [each["line"] for each in differ] == [4, 8]
    assert differ[0]["src"] == differ[0]["ref"] == REFERENCES[3]
    assert differ[0]["other"] == {"hypothesis": "x", "chrf2": pytest.approx(0, abs=1)}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"test": "dev"}, r"a and b must be of the same test sets, but one has test and the other dev"),
        ({"references": [*REFERENCES[:-1], "x"]}, r"references of `test`, but line 24 is “the cat.*“x”"),
        ({"references": REFERENCES[:-1]}, r"references of `test`, but one has 24 and the other 23"),
        ({"sources": ["x"] * 24}, r"sources of `test`, but line 1 is “the man"),
        ({"tokenizer": "zh"}, r"one tokenizer, but one has 13a and the other zh"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_same_text_is_refused_and_the_difference_named(other, message):
    with pytest.raises(InputError, match=message):
        compare([system("a", WORSE, sources=REFERENCES), system("b", WORSE, **other)], 0)


def test_files_with_other_numbers_of_lines_are_refused(tmp_path):
    (tmp_path / "ref").write_text("a\nb\u2028\n\nd\n")
    (tmp_path / "hyp").write_text("a\nb\n\n")
    with pytest.raises(CorpusError, match=r"hyp must have a line .* has 3 where that has 4"):
        read_files(tmp_path / "hyp", tmp_path / "ref", None, Kind("de", "13a"), "test")


def test_a_folder_that_is_no_result_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no sets\.json"):
        read_evaluated("a", tmp_path)


def test_what_evaluate_left_is_read(tmp_path):
    for folder in ("pairs", "hypotheses"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sets.json").write_text(json.dumps({"tokenizer": "13a", "tgt": "de", "sets": {"t": {}}}))  # fmt: skip
    (tmp_path / "pairs" / "t.jsonl").write_text('{"src": "a\\nb", "ref": "c"}\n{"src": "", "ref": "\u2028"}\n')  # fmt: skip
    (tmp_path / "hypotheses" / "t.txt").write_text("c\n\n")
    found = read_evaluated("a", tmp_path)
    assert found.sets == {"t": Rows(["a\nb", ""], ["c", "\u2028"], ["c", ""])}
