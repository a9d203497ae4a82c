"""How far a long stage is, as a progress artifact of its Prefect run."""

import contextvars
import logging
import re
import threading
from typing import NamedTuple, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

EVERY_S = 10.0
"""Between two messages to Prefect; a stage that is shorter sends none."""
LAST_WORD_S = 3.0
"""How long the end of a stage waits for its last message."""


class _Amount(NamedTuple):
    done: float
    total: float
    unit: str
    note: str

    @property
    def percent(self) -> float:
        return min(max(100 * self.done / self.total, 0.0), 100.0)

    def __str__(self) -> str:
        return f"{self.done:,.0f} of {self.total:,.0f} {self.unit} {self.note}".rstrip()


class StageProgress:
    """Follows one stage at a time, from a thread beside it.

    So a slow API costs the stage no time, and one that is away costs it nothing but the artifact.
    """

    def __init__(self) -> None:
        self._follower: _Follower | None = None

    def begin(self, name: str) -> None:
        """A stage begins; called within its Prefect run."""
        self.end()
        self._follower = _Follower(name)

    def show(self, done: float, total: float | None, unit: str, note: str = "") -> None:
        """`done` of `total` units; where the total is not known there is nothing to show."""
        if self._follower and total:
            self._follower.amount = _Amount(done, total, unit, note)

    def end(self) -> None:
        """The stage is over."""
        if self._follower:
            self._follower.end()
        self._follower = None


class _Follower:
    """Sends how far one stage is, again and again."""

    def __init__(self, name: str) -> None:
        self.amount: _Amount | None = None
        self._name = name
        self._artifact: UUID | None = None
        self._over = threading.Event()
        context = contextvars.copy_context()  # of the run that the artifact belongs to
        self._thread = threading.Thread(target=context.run, args=(self._follow,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(LAST_WORD_S)

    def _follow(self) -> None:
        while not self._over.wait(EVERY_S):
            self._send()
        if self._artifact:
            self._send()

    def _send(self) -> None:
        amount = self.amount
        if amount is None:
            return
        description = f"{self._name}: {amount}"
        try:
            if self._artifact:
                update_progress_artifact(self._artifact, amount.percent, description)
            else:
                key = f"traduko-{re.sub('[^a-z0-9]+', '-', self._name.lower()).strip('-')}"
                made = create_progress_artifact(amount.percent, key, description)
                self._artifact = cast("UUID", made)  # a coroutine only where there is a loop
        except Exception:  # an API that is away must not fail the stage
            logging.getLogger(__name__).debug("no progress artifact", exc_info=True)
