"""A stack: services brought up in order, watched, and taken down with all that they started."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import httpx

from infra.stack import processes, state
from infra.stack.ports import choose, is_free
from infra.stack.services import HOST, PORTS, Service, is_job
from infra.stack.state import Started, State
from pipeline.errors import TradukoError

Health = Literal["running", "unhealthy", "dead", "stopped"]
SCRATCH_PARENT = Path("/tmp")  # noqa: S108 - mkdtemp; Ray's sockets allow no longer path
PATIENCE_S = 20.0
POLL_S = 0.5
LAST_LINES = 15


@dataclass(frozen=True)
class Status:
    """How a service is."""

    service: str
    status: Health
    pid: int | None = None
    address: str | None = None
    started_at: str | None = None
    memory_bytes: int = 0
    detail: str = ""
    """What is wrong with it."""


class Stack:
    """The services of one folder.

    Args:
        folder: Of its state and logs.
        say: Told what happens.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self.folder = folder
        self._say = say

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Around every change of the stack: one command at a time."""
        return state.alone(self.folder, self._say)

    @property
    def memory(self) -> State:
        """What was started."""
        return state.read(self.folder, self._say)

    def log(self, service: str) -> Path:
        """The output of a service."""
        return self.folder / "logs" / f"{service}.log"

    def prepare(
        self,
        port_names: Mapping[str, Sequence[str]],
        given: Mapping[str, int],
        *,
        any_port: bool,
        defaults: Mapping[str, int] = PORTS,
    ) -> State:
        """Mend what a power cut or a kill left, and settle on ports.

        Args:
            port_names: By service, the names of its ports.
            given: Ports that the user chose, by name.
            any_port: Take another where one is taken.
            defaults: Ports by name.

        Raises:
            TradukoError: If a port is taken, or a running service has another than the one given.
        """
        memory = self._mended()
        kept = {
            name: memory.ports[name] for service in memory.services for name in port_names[service]
        }
        for name, port in given.items():
            if kept.get(name, port) != port:
                raise TradukoError(
                    f"{name} runs on port {kept[name]} already, not on {port}: "
                    "`traduko down` first."
                )
        wanted = {**defaults, **memory.ports, **given}
        memory = State(
            mark=memory.mark,
            ports=choose(wanted, kept, any_port=any_port),
            services=memory.services,
            scratch=memory.scratch or tempfile.mkdtemp(prefix="traduko-", dir=SCRATCH_PARENT),
        )
        state.write(self.folder, memory)
        return memory

    @contextlib.contextmanager
    def up(self, services: Sequence[Service], timeout_s: float) -> Iterator[list[str]]:
        """Start what does not run, wait until all answer, and run the body; the names started.

        If that or the body fails, what was started is stopped again.

        Raises:
            TradukoError: If a service ends or does not answer in time, with its last lines.
        """
        started: list[str] = []
        try:
            self._restart_unhealthy(services)
            self._bring_up(services, started, time.monotonic() + timeout_s)
            yield started
        except BaseException:
            for name in reversed(started):
                self._stop(name)
            if not self.memory.services:
                self._clear()
            raise

    def down(self, order: Sequence[str]) -> list[str]:
        """Stop all services, in this order, and all that they started; the names of those that ran.

        Raises:
            TradukoError: If something is left.
        """
        memory = self.memory
        ran = [name for name in order if processes.family(_mark(memory, name))]
        for name in ran:
            self._say(f"Stopping {name}.")
            self._stop(name)
        left = processes.end(memory.mark, (), PATIENCE_S)
        if left:
            raise TradukoError(
                "These processes could not be stopped: "
                + ", ".join(f"{process.name()} (pid {process.pid})" for process in left)
            )
        self._check_freed(memory)
        self._clear()
        return ran

    def status(self, services: Sequence[Service]) -> list[Status]:
        """How each service is."""
        memory = self.memory
        return [self._status(service, memory) for service in services]

    def _status(self, service: Service, memory: State) -> Status:
        known = memory.services.get(service.name)
        if known is None:
            return Status(service.name, "stopped")
        mark = _mark(memory, service.name)
        if not processes.is_running(known.pid, mark):
            return Status(
                service.name,
                "dead",
                detail=f"its process (pid {known.pid}) has ended; `traduko up` starts it again, "
                f"`traduko logs {service.name}` may say why",
            )
        wrong = _ask(service)
        return Status(
            service.name,
            "unhealthy" if wrong else "running",
            known.pid,
            service.address,
            known.started_at,
            processes.memory_bytes(mark),
            wrong,
        )

    def _mended(self) -> State:
        """The memory without services that died, and nothing of these left."""
        memory = self.memory
        alive = {
            name: known
            for name, known in memory.services.items()
            if processes.is_running(known.pid, _mark(memory, name))
        }
        for name in memory.services.keys() - alive.keys():
            self._say(f"{name} had died; starting it again.")
        keep = {_mark(memory, name) for name in alive}
        if not alive and memory.scratch:
            shutil.rmtree(memory.scratch, ignore_errors=True)
        self._end_orphans(memory, keep)
        return State(
            mark=memory.mark,
            ports=memory.ports,
            services=alive,
            scratch=memory.scratch if alive else None,
        )

    def _end_orphans(self, memory: State, keep: set[str]) -> None:
        """Stop what carries the mark of a service that does not run."""
        for mark in processes.marks(memory.mark) - keep:
            processes.end(mark, (), PATIENCE_S)

    def _restart_unhealthy(self, services: Sequence[Service]) -> None:
        """Stop what runs and does not answer, after a second chance."""
        for service in services:
            if service.name in self.memory.services and _ask(service):
                time.sleep(POLL_S)
                wrong = _ask(service)
                if wrong:
                    self._say(f"{service.name} does not answer ({wrong}); starting it again.")
                    self._stop(service.name)

    def _bring_up(self, services: Sequence[Service], started: list[str], until: float) -> None:
        """Start each once what it needs answers; wait for all."""
        waiting = list(services)
        healthy: set[str] = set()
        while waiting:
            for service in list(waiting):
                if not healthy.issuperset(service.needs):
                    continue
                if service.name not in self.memory.services:
                    started.append(service.name)
                    self._start(service)
                if not _ask(service):
                    healthy.add(service.name)
                    waiting.remove(service)
                else:
                    self._check_coming(service, until)
            if waiting:
                time.sleep(POLL_S)

    def _start(self, service: Service) -> None:
        memory = self.memory
        log = self.log(service.name)
        log.parent.mkdir(exist_ok=True)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        mark = _mark(memory, service.name)
        pid = processes.start(service.command, service.environment, mark, log, self.folder)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        known = {**memory.services, service.name: Started(pid=pid, started_at=now)}
        state.write(self.folder, memory.model_copy(update={"services": known}))

    def _check_coming(self, service: Service, until: float) -> None:
        """Raise if a service that does not answer yet never will."""
        memory = self.memory
        is_over = not processes.is_running(
            memory.services[service.name].pid, _mark(memory, service.name)
        )
        if is_over or time.monotonic() > until:
            what = "has ended" if is_over else f"does not answer in time ({_ask(service)})"
            log = self.log(service.name)
            lines = "\n".join(tail(log, LAST_LINES))
            raise TradukoError(
                f"{service.name} {what}; what was started is stopped. The end of {log}:\n{lines}"
            )

    def _stop(self, name: str) -> None:
        """End a service and all that it started."""
        memory = self.memory
        known, mark = memory.services.get(name), _mark(memory, name)
        if name == HOST:  # it would take its jobs along, and wait half a minute for its own actors
            family = processes.family(mark)
            jobs = [each.pid for each in family if is_job(processes.command_line(each))]
            processes.end(mark, jobs, PATIENCE_S, processes.GRACE_S)
        else:
            processes.end(mark, [known.pid] if known else [], PATIENCE_S)
        rest = {other: each for other, each in memory.services.items() if other != name}
        state.write(self.folder, memory.model_copy(update={"services": rest}))

    def _check_freed(self, memory: State) -> None:
        for name, port in memory.ports.items():
            if memory.services and not is_free(port):
                self._say(f"Port {port} ({name}) is still taken, not by this stack.")

    def _clear(self) -> None:
        """Nothing runs: nothing is remembered but logs, token and Prefect's database."""
        scratch = self.memory.scratch
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
        state.forget(self.folder)


def tail(path: Path, count: int) -> list[str]:
    """The last lines of a file; none of one that is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 1000 * count, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[-count:] if count else []


def _ask(service: Service) -> str:
    """What is wrong with a service; nothing if it answers well."""
    try:
        service.ask()
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return ""


def _mark(memory: State, service: str) -> str:
    return f"{memory.mark}/{service}"
