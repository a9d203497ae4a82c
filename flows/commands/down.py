"""`traduko down`: stop what `traduko up` started."""

import argparse

from flows.commands.options import Commands, command, json_option, root_of, root_option
from flows.commands.output import put_json, say


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "down",
        _down,
        "stop what `traduko up` started, and all that this started in turn",
        "traduko down",
    )
    json_option(parser)
    root_option(parser)
    parser.set_defaults(on_interrupt="Run the same command again to stop the rest.")


def _down(arguments: argparse.Namespace) -> None:
    from flows import stack as stacks

    stack = stacks.stack_of(root_of(arguments), say)
    stopped: list[str] = []
    if stack.folder.is_dir():
        with stack.alone():
            stopped = stack.down(tuple(reversed(stacks.SERVICES)))
    if arguments.json:
        put_json({"folder": str(stack.folder), "stopped": stopped})
    else:
        say("Nothing of it is left running." if stopped else "Nothing runs.")
