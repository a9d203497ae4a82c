import json
import os

import pytest

from pipeline.errors import ConfigError, TradukoError
from pipeline.scoring.comet import COMMAND, check_comet, comet

SOURCES, HYPOTHESES, REFERENCES = ["one\u2028x", "two"], ["eins x", "zwei"], ["eins\rx", "drei"]


def test_without_its_command_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=rf"needs the command {COMMAND}.*pipx install unbabel"):
        check_comet()


@pytest.fixture
def program(monkeypatch, tmp_path):
    """A program in the place of COMET's, which cannot be installed beside Traduko: what it is given
    it must read as COMET does, and what it writes has COMET's form."""

    def make(body):
        path = tmp_path / "bin" / COMMAND
        path.parent.mkdir()
        path.write_text(f"#!/usr/bin/env python3\nimport json, sys\n{body}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")

    return make


def test_scores_come_in_the_order_of_sentences(program):
    program(
        "given = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "given = {key: value for key, value in zip(sys.argv, sys.argv[1:]) if key[0] == '-'}\n"
        "sides = [open(given[key], encoding='utf-8').readlines() for key in ('-s', '-t', '-r')]\n"
        "assert given['--model'] == 'some/model' and given['--gpus'] == '0'\n"
        "rows = [{'src': s, 'mt': t, 'ref': r, 'COMET': len(t) / 10} for s, t, r in zip(*sides, strict=True)]\n"
        "json.dump({given['-t']: rows}, open(given['--to_json'], 'w'))\n"
    )
    measure = comet("some/model", SOURCES, 0)
    counts = measure.counts_of(HYPOTHESES, REFERENCES)
    assert counts.tolist() == [[0.7, 1.0], [0.5, 1.0]]
    assert measure.score_of(counts.sum(0).tolist()) == pytest.approx(60)
    assert "model:some/model" in measure.signature
    assert json.dumps(measure.label) == '"COMET x 100 (model)"'


def test_a_failure_is_told_with_its_last_line(program):
    program("sys.exit('no such model')")
    with pytest.raises(TradukoError, match=r"some/model: no such model"):
        comet("some/model", SOURCES, 0).counts_of(HYPOTHESES, REFERENCES)
