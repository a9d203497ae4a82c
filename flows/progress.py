"""What a run shows while it goes: facts as lines, progress as bars on a terminal."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline import job


class Display(Protocol):
    """Shows a person how a run goes."""

    def say(self, line: str) -> None:
        """One line that stays."""
        ...

    def remind(self, line: str) -> None:
        """One line that only a person at a terminal wants to see."""
        ...

    def begin(self, name: str) -> None:
        """A stage begins."""
        ...

    def end(self) -> None:
        """The stage is over."""
        ...

    def progress(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """`done` of `total` units are finished."""
        ...

    def beside(self, name: str) -> AbstractContextManager[job.Progress]:
        """A bar of its own, for work that goes on beside other work, in any thread."""
        ...


class Terminal:
    """Lines on standard error; moving bars only where that is a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bars = Progress(
            TextColumn("  {task.description:<12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._stage: _Bar | None = None

    def __enter__(self) -> "Terminal":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line, markup=False)

    def remind(self, line: str) -> None:
        """One line for a person: not for a file or a pipe."""
        if self._console.is_terminal:
            self.say(line)

    def begin(self, name: str) -> None:
        """A stage begins: its bar replaces the last one."""
        self.end()
        self._stage = _Bar(self._bars, name)

    def end(self) -> None:
        """The stage is over: its bar goes."""
        if self._stage:
            self._stage.remove()
        self._stage = None

    def progress(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """`done` of `total` units; the rate is over the time since the first call."""
        if self._stage:
            self._stage.show(done, total, unit, note)

    @contextmanager
    def beside(self, name: str) -> Iterator[job.Progress]:
        """A bar of its own, for work that goes on beside other work, in any thread."""
        bar = _Bar(self._bars, name)
        try:
            yield bar.show
        finally:
            bar.remove()


class _Bar:
    """One of the bars on a terminal."""

    def __init__(self, bars: Progress, name: str) -> None:
        self._bars = bars
        self._task = bars.add_task(name, total=None, amount="", note="")
        self._started, self._first = 0.0, 0.0

    def show(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        if self._bars.disable:
            return
        now = time.perf_counter()
        if not self._started:
            self._started, self._first = now, done
        rate = (done - self._first) / max(now - self._started, 1e-6)
        of_total = f"/{_short(total)}" if total else ""
        amount = f"{_short(done)}{of_total} {unit}, {_short(rate)}/s"
        self._bars.update(self._task, completed=done, total=total, amount=amount, note=note)

    def remove(self) -> None:
        self._bars.remove_task(self._task)


def _short(number: float) -> str:
    """1234567 → 1.2M."""
    for least, unit, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if number >= least:
            return f"{number / unit:.1f}{suffix}"
    return f"{number:.0f}"
