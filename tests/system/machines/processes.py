"""Where no namespaces can be made: three nodes of a cluster that are processes of one machine."""

import os
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from tests.system.machines.namespaces import MACHINE, PROJECT

STORE_BYTES = 100 << 20


class Processes:
    """A head that runs no work, and two nodes of one CPU each, which share all their folders."""

    hidden = None

    def __init__(self, folder: Path):
        self.folder = folder
        self._cluster = Cluster()  # type: ignore[no-untyped-call]
        self._add(0, num_cpus=0, include_dashboard=False)
        self._nodes = {machine: self._add(machine, num_cpus=1) for machine in (1, 2)}

    @property
    def head(self) -> str:
        return str(self._cluster.address)

    def start(self, machine: int, command: list[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command on a machine: they are all the same to it."""
        environment = {**os.environ, MACHINE: str(machine), "PYTHONPATH": str(PROJECT)}
        return subprocess.Popen(command, env=environment, cwd=PROJECT, **options)

    def cut(self, machine: int) -> None:
        """Pull its plug."""
        self._cluster.remove_node(self._nodes.pop(machine), allow_graceful=False)

    def remove(self) -> None:
        """End what runs on them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            self._cluster.shutdown()

    def _add(self, machine: int, **options: object) -> object:
        variables = {MACHINE: str(machine)}
        return self._cluster.add_node(
            env_vars=variables, object_store_memory=STORE_BYTES, **options
        )


@contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Three nodes that form a cluster."""
    made = Processes(folder)
    try:
        yield made
    finally:
        made.remove()
