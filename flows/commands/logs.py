"""`traduko logs`: what a service of the stack says."""

import argparse
import os
import time

from flows.commands.options import Commands, command, root_of, root_option
from flows.commands.output import put, say
from infra.stack.stack import tail
from pipeline.errors import InputError

POLL_S = 0.5
NAMES = ("ray", "mlflow", "prefect", "worker")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "logs",
        _logs,
        "show what a service of `traduko up` says",
        "traduko logs worker -f",
    )
    root_option(parser)
    parser.add_argument("service", choices=NAMES, metavar="SERVICE", help=", ".join(NAMES))
    parser.add_argument("-n", type=int, default=100, metavar="LINES", help="the last so many; default %(default)s")  # fmt: skip
    parser.add_argument("-f", "--follow", action="store_true", help="go on as it says more")
    parser.set_defaults(on_interrupt="The service goes on.")


def _logs(arguments: argparse.Namespace) -> None:
    from flows import stack as stacks

    stack = stacks.stack_of(root_of(arguments), say)
    path = stack.log(arguments.service)
    if arguments.n < 0:
        raise InputError(f"-n must be at least 0, but is {arguments.n}.")
    if not path.exists():
        raise InputError(f"{arguments.service} has no log in {path.parent}: `traduko up` first.")
    with path.open(encoding="utf-8", errors="replace") as file:
        file.seek(0, 2)
        lines = tail(path, arguments.n)
        if lines:
            put("\n".join(lines))
        while arguments.follow:
            more = file.readline()
            if more:
                put(more.rstrip("\n"))
            elif path.exists() and path.stat().st_ino != _inode(file.fileno()):
                say(f"{arguments.service} was started again.")
                return
            else:
                time.sleep(POLL_S)


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino
