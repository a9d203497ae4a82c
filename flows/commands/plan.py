"""`traduko plan`: what a run would do, and why."""

import argparse

from flows.commands.options import Commands, command, open_run, recipe_options
from flows.commands.output import put, put_json, say
from pipeline.artifact import Json
from pipeline.dag import Planned


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "plan",
        _plan,
        "say which stages would run, and why",
        "traduko plan quickstart --set clean.max_words=40",
    )
    recipe_options(parser)


def _plan(arguments: argparse.Namespace) -> None:
    planned = open_run(arguments, say).plan()
    if arguments.json:
        put_json({"stages": [_planned_document(step) for step in planned]})
    else:
        put("\n".join(_plan_line(step) for step in planned))


def _planned_document(step: Planned) -> Json:
    return {
        "stage": step.node.stage.name,
        "source": step.node.source.name if step.node.source else None,
        "fingerprint": step.fingerprint,
        "status": step.status,
        "reason": step.reason,
    }


def _plan_line(step: Planned) -> str:
    status = {"cached": "cached", "run": "will run", "depends": "depends", "damaged": "damaged"}
    return f"{step.node.name:<26} {status[step.status]:<10} {step.reason}".rstrip()
