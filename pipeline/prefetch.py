"""An iterator that works ahead in a thread of its own."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetch(make: Callable[[], Iterator[T]], ahead: int) -> Generator[T]:
    """Yield what an iterator yields, with so many items ready; its errors come where it has them.

    The thread ends when the generator is closed, or no longer used.
    """
    assert ahead >= 1
    ready: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(ahead)
    over = threading.Event()

    def work() -> None:
        end: BaseException | None = None
        try:
            for item in make():
                if not _put(ready, (item,), over):
                    return
        except BaseException as error:  # noqa: BLE001 - raised again by whoever reads
            end = error
        _put(ready, end, over)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while isinstance(item := ready.get(), tuple):
            yield item[0]
        if item is not None:
            raise item
    finally:
        over.set()
        thread.join()


def _put(ready: "queue.Queue[T]", item: T, over: threading.Event) -> bool:
    """Wait for room, unless nobody reads any more; say whether there was any."""
    while not over.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
