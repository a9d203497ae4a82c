"""Cancel in Prefect, for a run that began in a shell: no worker of Prefect's watches it."""

import contextlib
import contextvars
import os
import signal
import threading
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled

LOOK_EVERY_S = 5.0


class Cancellation:
    """Ends this process as SIGTERM does once its run is cancelled in Prefect."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._cancelled: UUID | None = None

    def heed(self, flow: object, flow_run: FlowRun, state: object) -> None:
        """Watch the run from now on: a hook for its becoming Running."""
        del flow, state
        context = contextvars.copy_context()  # knows the server
        watch = threading.Thread(target=context.run, args=(self._watch, flow_run.id), daemon=True)
        watch.start()

    def __enter__(self) -> "Cancellation":
        return self

    def __exit__(self, *_: object) -> None:
        """The flow has ended: say so where it was cancelled."""
        self._over.set()
        if self._cancelled:
            with contextlib.suppress(Exception), get_client(sync_client=True) as client:
                client.set_flow_run_state(self._cancelled, Cancelled(), force=True)

    def _watch(self, run: UUID) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            if _is_cancelled(run):
                self._cancelled = run
                os.kill(os.getpid(), signal.SIGTERM)
                return


def _is_cancelled(run: UUID) -> bool:
    """Whether Prefect says so; an API that is away cancels nothing."""
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        state = client.read_flow_run(run).state
        return bool(state and state.is_cancelling())
    return False
