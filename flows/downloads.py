"""Downloads beside each other, before the stages that need them are taken one by one."""

import queue
import threading
from collections.abc import Iterable

from flows.progress import Display
from pipeline.fetching.address import file_name, public
from pipeline.fetching.fetched import Files
from pipeline.sources import FileSource

AT_ONCE = 4
"""Few enough for one server to bear."""
GRACE_S = 2.0
"""How long threads may take to stop, once the run is over; after that they stop by themselves."""


class _Stopped(Exception):  # noqa: N818 - not a failure
    """Somebody else failed, or the user has had enough."""


def fetch_all(files: Files, wanted: Iterable[FileSource], display: Display) -> None:
    """Fetch what comes over the network, a few files at a time.

    Raises:
        CorpusError: The first error, as it is. The others stop, and what has come of them stays.
        TradukoError: Likewise.
    """
    todo: queue.SimpleQueue[FileSource] = queue.SimpleQueue()
    done: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
    stop = threading.Event()
    remote = files.remote(wanted)
    for file in remote:
        todo.put(file)
    # Daemons: one that waits for a silent server must not keep an interrupted run from ending.
    threads = [
        threading.Thread(target=_work, args=(files, todo, done, stop, display), daemon=True)
        for _ in remote[:AT_ONCE]
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in remote:
            told = done.get()
            if isinstance(told, BaseException):
                raise told
            display.say(told)
    finally:
        stop.set()
        for thread in threads:
            thread.join(GRACE_S / len(threads))


def _work(
    files: Files,
    todo: "queue.SimpleQueue[FileSource]",
    done: "queue.SimpleQueue[str | BaseException]",
    stop: threading.Event,
    display: Display,
) -> None:
    """Fetch file after file, until there is none left or the run is over."""
    while not stop.is_set():
        try:
            file = todo.get_nowait()
        except queue.Empty:
            return
        try:
            done.put(_fetch(files, file, stop, display))
        except BaseException as error:  # noqa: BLE001 - raised again where the run can be ended
            done.put(error)  # before the others, which stop because of it
            stop.set()


def _fetch(files: Files, file: FileSource, stop: threading.Event, display: Display) -> str:
    """One file; what to say of it."""
    with display.beside(file_name(file.address)) as progress:

        def show(done_bytes: int, size_bytes: int | None) -> None:
            if stop.is_set():
                raise _Stopped
            progress(done_bytes, size_bytes, "bytes")

        with files.open(file, show) as fetched:
            return f"{public(file.address)}: {fetched.size_bytes:,} bytes"
