"""`traduko up`: Prefect, MLflow and Ray on this machine."""

import argparse
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from flows.commands.options import Commands, command, json_option, root_of, root_option
from flows.commands.output import put, put_json, say
from infra.stack.ports import parse
from infra.stack.services import PORTS, make_token, services
from infra.stack.stack import Status
from pipeline.artifact import check_writable

TIMEOUT_S = 300


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "up",
        _up,
        "start Prefect, MLflow and Ray on this machine, and deploy the flows",
        'eval "$(traduko up)"',
    )
    json_option(parser)
    root_option(parser)
    parser.add_argument("--port", action="append", default=[], metavar="NAME=PORT", help=f"listen there; NAME is one of {', '.join(PORTS)}")  # fmt: skip
    parser.add_argument("--any-port", action="store_true", help="take another port where one is taken")  # fmt: skip
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help="how long the services may take to answer; default %(default)s")  # fmt: skip
    parser.set_defaults(on_interrupt="What was started has been stopped.")


def _up(arguments: argparse.Namespace) -> None:
    from flows import stack as stacks
    from flows.automation import crash_zombies

    given = parse(arguments.port, PORTS)
    root = root_of(arguments)
    check_writable(root)
    stack = stacks.stack_of(root, say)
    with stack.alone():
        memory = stack.prepare(stacks.SERVICE_PORTS, given, any_port=arguments.any_port)
        site = stacks.site_of(root, memory)
        make_token(site.token_file)
        if "mlflow" not in memory.services:
            stacks.make_store(root)
        for name in memory.services:
            say(f"{name} runs already.")
        with stack.up(services(site), arguments.timeout) as started:
            crash_zombies(site.exports["PREFECT_API_URL"])
            stacks.deploy(site, Path.cwd())
        found = stack.status(services(site))
    exports = stacks.exports_of(site)
    if arguments.json:
        put_json(
            {
                "root": str(root),
                "folder": str(stack.folder),
                "started": started,
                "services": [status_document(each) for each in found],
                "environment": exports,
            }
        )
    else:
        _show(found, exports)


def _show(found: Iterable[Status], exports: Mapping[str, str]) -> None:
    for each in found:
        say(f"{each.service:<8} {each.status:<10} {each.address}")
    say('\nTo use it from a shell (or: eval "$(traduko up)", which does no harm twice):\n')
    put("\n".join(f"export {name}={shlex.quote(value)}" for name, value in exports.items()))


def status_document(status: Status) -> dict[str, object]:
    """One service as scripts read it."""
    return {
        "service": status.service,
        "status": status.status,
        "pid": status.pid,
        "address": status.address,
        "started_at": status.started_at,
        "memory_bytes": status.memory_bytes,
        "detail": status.detail or None,
    }
