"""`traduko`: the command line.

Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted.
"""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence

from flows.commands import (
    artifacts,
    compare,
    doctor,
    down,
    export,
    init,
    logs,
    plan,
    recipes,
    run,
    status,
    submit,
    translate,
    up,
)
from flows.commands.output import put_json, say
from flows.environment import turn_off_reporting
from pipeline.errors import TradukoError

COMMANDS = (
    init, run, submit, plan, translate, compare, export, recipes, artifacts, up, down, status, logs,
    doctor,
)  # fmt: skip
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = parser().parse_args(argv)
    turn_off_reporting()
    command: Callable[[argparse.Namespace], None] = arguments.command
    try:
        command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except TradukoError as error:
        return _fail(arguments, str(error), error.kind, error.exit_code)
    except OSError as error:
        return _fail(arguments, _explain(error), "failed", 1)
    except KeyboardInterrupt:
        then = getattr(arguments, "on_interrupt", "Run the same command to go on.")
        return _fail(arguments, f"Interrupted. {then}", "interrupted", INTERRUPTED)
    return 0


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    whole = argparse.ArgumentParser(
        prog="traduko", description="Parallel text in, a scored translation model out."
    )
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for module in COMMANDS:
        module.add(commands)
    return whole


def _explain(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return (
            f"{where}no space is left on the disk. Free some, or choose another one with --root; "
            "then the same command goes on."
        )
    return f"{where}{error.strerror or error}"


def _fail(arguments: argparse.Namespace, message: str, kind: str, code: int) -> int:
    if getattr(arguments, "json", False):
        put_json({"error": {"kind": kind, "message": message}})
    say(f"traduko: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
