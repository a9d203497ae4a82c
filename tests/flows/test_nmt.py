"""The flow's own choices; tests/system runs it under a real server."""

import inspect

import pytest
from prefect.states import Failed

from flows.nmt import StageName, _can_help, nmt
from pipeline.errors import ConfigError, CorpusError, InputError, TradukoError
from pipeline.stages import STAGE_NAMES


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TradukoError("the network is down"), True),
        (InputError("wrong"), False),
        (ConfigError("wrong"), False),
        (CorpusError("wrong"), False),
        (OSError("no space left"), False),
        (ValueError("a bug"), False),
    ],
)
def test_a_task_is_tried_again_only_where_that_can_help(error, expected):
    assert _can_help(None, None, Failed(message="failed", data=error)) is expected


def test_the_form_offers_every_stage():
    assert StageName.__args__ == STAGE_NAMES


def test_the_flow_takes_what_the_command_line_gives():
    assert list(inspect.signature(nmt.fn).parameters) == [
        "recipe", "set", "only", "start", "force", "root", "ray",
    ]  # fmt: skip
