"""Which ports are free, and who holds those that are not."""

import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import psutil

from pipeline.errors import ConfigError, TradukoError

LOOPBACK = "127.0.0.1"
NUM_TRIES = 100


class Holder(NamedTuple):
    """A process that listens."""

    pid: int | None
    """None where it belongs to another user, and the system does not say."""
    name: str

    def __str__(self) -> str:
        return f"`{self.name}` (pid {self.pid})" if self.pid else self.name


def is_free(port: int) -> bool:
    """Whether a server could listen there on this machine's own address."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def holder(port: int) -> Holder:
    """Who listens on a port that is not free."""
    for process in psutil.process_iter():
        try:
            listening = [
                connection.laddr.port
                for connection in process.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
            if port in listening:
                return Holder(process.pid, _short(process))
        except psutil.Error:
            continue  # it ended meanwhile, or is another user's
    return Holder(None, "a process of another user")


def choose(
    wanted: Mapping[str, int],
    kept: Mapping[str, int],
    *,
    any_port: bool,
    option: str = "--port",
) -> dict[str, int]:
    """A port for each name: the wanted one where it is free.

    Args:
        wanted: By name.
        kept: Those that already listen for us.
        any_port: Take another one where the wanted one is taken.
        option: What the message tells the user to choose with.

    Raises:
        TradukoError: If ports are taken, naming by whom.
    """
    chosen = dict(kept)
    taken = []
    for name, port in wanted.items():
        if name in kept:
            continue
        if port not in chosen.values() and is_free(port):
            chosen[name] = port
        elif any_port:
            chosen[name] = free_port({*wanted.values(), *chosen.values()})
        else:
            taken.append(f"Port {port} for {name} is taken by {_who(port, chosen)}.")
    if taken:
        raise TradukoError(
            "\n".join(taken)
            + f"\nChoose others with {option} NAME=PORT, or take any with --any-port."
        )
    return chosen


def free_port(besides: Iterable[int]) -> int:
    """A port that is free now."""
    others = set(besides)
    for _ in range(NUM_TRIES):
        with socket.socket() as listener:
            listener.bind((LOOPBACK, 0))
            port: int = listener.getsockname()[1]
        if port not in others:
            return port
    raise TradukoError("No free port was found on this machine.")


def parse(settings: Iterable[str], names: Iterable[str]) -> dict[str, int]:
    """Ports by name, from NAME=PORT.

    Raises:
        ConfigError: If a name is unknown or a port is none.
    """
    known = list(names)
    ports = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in known or not text.isdecimal() or not 1 <= int(text) <= 65535:
            raise ConfigError(
                f"A port must read NAME=PORT, NAME one of {', '.join(known)} and PORT within "
                f"1 to 65535, but is `{setting}`."
            )
        ports[name] = int(text)
    return ports


def _who(port: int, chosen: Mapping[str, int]) -> str:
    for name, other in chosen.items():
        if other == port:
            return f"{name} of this stack"
    return str(holder(port))


def _short(process: psutil.Process) -> str:
    """What it was called with, where that says more than its name."""
    words = process.cmdline()
    return " ".join(words)[:80].strip() if words else str(process.name())  # Ray pads its titles
