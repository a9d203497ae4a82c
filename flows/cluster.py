"""Joining Ray: a local cluster sized to the machine, or one that is there."""

import logging
import signal
import threading
import warnings

from flows.environment import turn_off_reporting
from pipeline.errors import TradukoError

OBJECT_STORE_BYTES = 200 << 20
"""Of a local cluster: only small notes pass through it, rows go by files."""


class Cluster:
    """A Ray cluster, joined at the first use and left at the end.

    Args:
        address: None for a local one; `auto` or HOST:PORT for one that runs.
    """

    def __init__(self, address: str | None):
        self._address = address
        self._joined = False

    def connect(self) -> None:
        """Join; nothing happens when already joined.

        Raises:
            TradukoError: If the cluster cannot be reached.
        """
        if self._joined:
            return
        turn_off_reporting()
        import ray

        on_termination = signal.getsignal(signal.SIGTERM)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ray.init(
                    address=self._address or "local",
                    include_dashboard=None if self._address else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=None if self._address else OBJECT_STORE_BYTES,
                )
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = self._address or "a local cluster"
            raise TradukoError(f"Ray cannot be reached at {where}: {error}") from None
        self._joined = True
        if threading.current_thread() is threading.main_thread():
            # Ray puts a handler there that aborts the process.
            signal.signal(signal.SIGTERM, on_termination or signal.SIG_DFL)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave; a local cluster ends."""
        if self._joined:
            import ray

            ray.shutdown()
            self._joined = False
