"""Three machines in one: network namespaces with addresses of their own, each a node of a cluster.

Needs root and iproute2: where they cannot be made, `processes.py` has nodes without them. Names and
addresses follow from the process, so that two can run at once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
RAY = str(Path(sys.executable).parent / "ray")
NUM_MACHINES = 3
NUM_TRIES = 3
PORT = 6379
MACHINE = "TRADUKO_TEST_MACHINE"
"""The variable that tells what runs on a machine which one that is."""
NODE = ["--block", "--disable-usage-stats", f"--object-store-memory={100 << 20}"]
QUICK_TO_NOTICE = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "6",
}


class CannotBeMadeError(Exception):
    """This machine makes no network namespaces for us."""


class Machines:
    """A head that runs no work, and two machines of one CPU each."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._id = os.getpid() % 30000
        self._net = f"10.{100 + self._id % 100}.{self._id // 100 % 250}"
        self._bridge = f"tr{self._id}"
        self._started: list[subprocess.Popen[bytes]] = []
        self.hidden = folder / "hidden"
        """The last machine sees another folder in its place."""

    def address_of(self, machine: int) -> str:
        return f"{self._net}.{10 + machine}"

    @property
    def head(self) -> str:
        return f"{self.address_of(0)}:{PORT}"

    def environment(self, machine: int) -> dict[str, str]:
        """Of whatever runs on one."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return clean | QUICK_TO_NOTICE | {
            MACHINE: str(machine),
            "PYTHONPATH": str(PROJECT), "HOME": str(self.folder), "GLOO_SOCKET_IFNAME": "eth0",
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "ab" * 32,
        }  # fmt: skip

    def start(self, machine: int, command: list[str], **options: object) -> subprocess.Popen[str]:
        """Start a command on a machine."""
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            ["ip", "netns", "exec", self._name(machine), *command],
            env=self.environment(machine), cwd=PROJECT, **options,
        )  # fmt: skip

    def cut(self, machine: int) -> None:
        """Pull its plug: the others no longer hear of it."""
        ip("link", "set", self._cable(machine), "down")

    def connect(self) -> None:
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for machine in range(NUM_MACHINES):
            name = self._name(machine)
            ip("netns", "add", name)
            ip("link", "add", self._cable(machine), "type", "veth", "peer", "name", "eth0", "netns", name)  # fmt: skip
            ip("link", "set", self._cable(machine), "master", self._bridge, "up")
            ip("-n", name, "addr", "add", f"{self.address_of(machine)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def start_nodes(self) -> None:
        """Start Ray on each, and wait until the head knows all."""
        self.hidden.mkdir()
        self._start_node(0, ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self.folder / 'r'}"])  # fmt: skip
        for machine in (1, 2):  # one after the other: Ray gives a start 30 s, on a busy machine too
            self._start_node(machine, [f"--address={self.head}", "--num-cpus=1"])

    def _start_node(self, machine: int, arguments: list[str]) -> None:
        address = f"--node-ip-address={self.address_of(machine)}"
        command = [RAY, "start", address, *NODE, *arguments]
        if machine == NUM_MACHINES - 1:  # `ip netns exec` gives each command mounts of its own
            hide = f'mount -t tmpfs none {self.hidden} && exec "$@"'
            command = ["sh", "-c", hide, "sh", *command]
        log = self._log(machine)
        for _ in range(NUM_TRIES):
            with log.open("w") as output:
                started = self.start(machine, command, stdout=output, stderr=output)
            self._started.append(started)  # type: ignore[arg-type]
            wait_until(lambda: self._is_up(log) or started.poll() is not None, log)  # noqa: B023 - it is called here
            if self._is_up(log):
                return
        raise AssertionError(log.read_text())

    @staticmethod
    def _is_up(log: Path) -> bool:
        return "runtime started" in log.read_text()

    def remove(self) -> None:
        """End what runs on them, and take them away."""
        for machine in range(NUM_MACHINES):
            for pid in ip("netns", "pids", self._name(machine)).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for started in self._started:
            started.wait(20)
        for machine in range(NUM_MACHINES):
            ip("netns", "del", self._name(machine))
            with contextlib.suppress(
                subprocess.CalledProcessError
            ):  # else it goes with the other end
                ip("link", "del", self._cable(machine))
        ip("link", "del", self._bridge)

    def _name(self, machine: int) -> str:
        return f"tr{self._id}n{machine}"

    def _cable(self, machine: int) -> str:
        return f"tr{self._id}c{machine}"

    def _log(self, machine: int) -> Path:
        return self.folder / f"node-{machine}.log"


def ip(*arguments: str) -> str:
    """iproute2; what it prints."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def wait_until(holds, log: Path | None = None, limit_s: float = 180) -> None:  # type: ignore[no-untyped-def]
    until = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until, log.read_text() if log else "it takes too long"
        time.sleep(0.2)


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Three machines that form a cluster.

    Raises:
        CannotBeMadeError: That says why.
    """
    if os.geteuid() != 0 or not shutil.which("ip"):
        raise CannotBeMadeError("root and iproute2 are needed (apt-get install iproute2)")
    made = Machines(folder)
    try:
        made.connect()
    except subprocess.CalledProcessError as error:
        with contextlib.suppress(subprocess.CalledProcessError):
            made.remove()
        raise CannotBeMadeError(error.stderr.strip()) from None
    try:
        made.start_nodes()
        yield made
    finally:
        made.remove()
