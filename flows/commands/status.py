"""`traduko status`: how the stack is."""

import argparse

from flows.commands.options import Commands, command, json_option, root_of, root_option
from flows.commands.output import put, put_json, say
from flows.commands.up import status_document
from infra.stack.stack import Status


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands, "status", _status, "say how the services of `traduko up` are", "traduko status"
    )
    json_option(parser)
    root_option(parser)


def _status(arguments: argparse.Namespace) -> None:
    from flows import stack as stacks

    root = root_of(arguments)
    stack = stacks.stack_of(root, say)
    memory = stack.memory
    found = stack.status(stacks.services_of(root, memory))
    if arguments.json:
        put_json({"root": str(root), "services": [status_document(each) for each in found]})
    else:
        put("\n".join(_line(each) for each in found))


def _line(status: Status) -> str:
    words = f"{status.service:<8} {status.status:<10}"
    if status.pid:
        memory = f"{status.memory_bytes / 2**20:,.0f} MiB"
        words += f" {status.address:<48} pid {status.pid:<8} {memory:>9}  since {status.started_at}"
    return f"{words} {status.detail}".rstrip()
