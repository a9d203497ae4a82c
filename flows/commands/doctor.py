"""`traduko doctor`: what is amiss on this machine, and what to do."""

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from flows.commands.options import Commands, command, json_option, root_of, root_option
from flows.commands.output import put, put_json, say

if TYPE_CHECKING:
    from infra.doctor.finding import Finding

MUST_BE_MENDED = 1


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "doctor",
        _doctor,
        "check Python, packages, disk, memory, GPUs, ports and services, and say what to do",
        "traduko doctor",
    )
    json_option(parser)
    root_option(parser)


def _doctor(arguments: argparse.Namespace) -> None:
    findings = _examine(root_of(arguments))
    if arguments.json:
        put_json({"checks": [dataclasses.asdict(each) for each in findings]})
    else:
        put("\n".join(_line(each) for each in findings))
    if any(each.verdict == "mend" for each in findings):
        raise SystemExit(MUST_BE_MENDED)


def _examine(root: Path) -> "list[Finding]":
    from infra.doctor import machine, services
    from infra.stack import processes, state
    from infra.stack.services import PORTS

    memory = state.read(root / "stack", say)
    own = memory.ports.values() if processes.marks(memory.mark) else ()
    return [
        machine.this_python(),
        machine.own_packages(),
        machine.writable(root),
        machine.disk(root),
        machine.memory(machine.free_memory_bytes()),
        machine.shared_memory(),
        machine.gpu(),
        machine.ports({**PORTS, **memory.ports}, own),
        services.ray_cluster(os.environ),
        services.mlflow_store(os.environ),
        services.prefect_api(os.environ),
    ]


def _line(finding: "Finding") -> str:
    line = f"{finding.verdict:<5} {finding.check:<14} {finding.found}"
    return f"{line}\n{'':<21}→ {finding.advice}" if finding.advice else line
