"""The command line without its engines: what it says, not how long they take to start."""

import pytest

from flows.run import Workplace, document, make_run
from pipeline.compute import InProcess


def run_plainly(parameters, terminal):
    options = dict(parameters)
    recipe, overrides = options.pop("recipe"), options.pop("set")
    del options["ray"]
    run = make_run(recipe, overrides, environment={}, say=terminal.say, **options)
    return document(run, run.execute(Workplace(InProcess(), terminal)))


@pytest.fixture
def without_engines(monkeypatch):
    """`traduko run` in this process alone; tests/system runs the real thing."""
    from flows import nmt

    monkeypatch.setattr(nmt, "run_here", run_plainly)
