import json

import pytest

from flows.cli import main


@pytest.fixture
def files(tmp_path):
    """References and two files of translations."""
    texts = {
        "ref": "das Haus ist rot\n" * 9,
        "a": "das Haus ist\n" * 9,
        "b": "das Haus ist rot\n" * 9,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in texts}


def test_files_are_compared_and_every_score_has_its_label(files, capsys):
    options = ["--reference", files["ref"], "--tgt", "de"]
    assert main(["compare", *options, files["a"], files["b"]]) == 0
    shown = capsys.readouterr().out
    for label in ("BLEU (13a)  nrefs:1|", "chrF2  nrefs:1|", "TER (lower is better)  nrefs:1|"):
        assert label in shown
    assert "seed 12345" in shown
    assert "line 1" in shown
    assert main(["compare", *options, files["a"], files["b"], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    _, other = found["sets"]["ref"]["metrics"]["bleu"]["systems"]
    assert (other["system"], other["score"]) == (files["b"], 100.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "two or more different systems"),
        (["a", "a"], "two or more different systems"),
        (["a", "b"], "needs --reference and --tgt"),
        (["quickstart", "a"], "is not evaluated in"),
    ],
)
def test_what_cannot_be_compared_is_wrong_input(files, tmp_path, capsys, arguments, message):
    systems = [files.get(name, name) for name in arguments]
    assert main(["compare", "--root", str(tmp_path / "root"), *systems]) == 2
    assert message in capsys.readouterr().err
