"""What a run shows while it goes: facts as lines, progress as a bar on a terminal."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

REFRESH_S = 0.2


class Terminal:
    """Lines on standard error; a moving bar only where that is a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("  {task.description:<12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[amount]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._started = 0.0
        self._first: float = 0.0

    def __enter__(self) -> "Terminal":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line, markup=False)

    def begin(self, name: str) -> None:
        """A stage begins: its bar replaces the last one."""
        self.end()
        self._task = self._bar.add_task(name, total=None, amount="", note="")
        self._started, self._first = 0.0, 0.0

    def end(self) -> None:
        """The stage is over: its bar goes."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = None

    def progress(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """`done` of `total` units; the rate is over the time since the first call."""
        if self._task is None or self._bar.disable:
            return
        now = time.perf_counter()
        if not self._started:
            self._started, self._first = now, done
        rate = (done - self._first) / max(now - self._started, 1e-6)
        of_total = f"/{_short(total)}" if total else ""
        amount = f"{_short(done)}{of_total} {unit}, {_short(rate)}/s"
        self._bar.update(self._task, completed=done, total=total, amount=amount, note=note)


def _short(number: float) -> str:
    """1234567 → 1.2M."""
    for least, unit, suffix in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if number >= least:
            return f"{number / unit:.1f}{suffix}"
    return f"{number:.0f}"
