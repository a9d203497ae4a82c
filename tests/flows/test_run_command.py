"""`traduko run` and what its engines print."""

import json

from flows import nmt
from flows.cli import main


def test_what_an_engine_prints_is_not_in_the_result(monkeypatch, capsys, tmp_path):
    def run_with_noise(parameters, terminal):
        print("(raylet) a node is gone")
        return {"scores": {}, "model": None, "report": None}

    monkeypatch.setattr(nmt, "run_here", run_with_noise)
    assert main(["run", "quickstart", "--root", str(tmp_path), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["scores"] == {}
    assert "a node is gone" in told.err
