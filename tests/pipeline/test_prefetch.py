import threading
from itertools import count

import pytest

from pipeline.prefetch import prefetch


def threads():
    return {thread for thread in threading.enumerate() if thread.is_alive()}


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 10])
def test_items_come_in_order_and_whole(size, ahead):
    before = threads()
    assert list(prefetch(lambda: iter(range(size)), ahead)) == list(range(size))
    assert threads() == before


def test_an_error_comes_after_the_items_before_it():
    def fail():
        yield 1
        yield None
        raise ValueError("the third")

    items = prefetch(fail, 1)
    assert next(items) == 1
    assert next(items) is None
    with pytest.raises(ValueError, match="the third"):
        next(items)


def test_no_more_is_made_than_asked_for_and_the_thread_ends_with_the_reader():
    before, made = threads(), []
    items = prefetch(lambda: (made.append(number) or number for number in count()), 2)
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    items.close()
    assert threads() == before
    assert len(made) <= 5 + 2 + 2


def test_items_are_made_while_the_reader_is_busy():
    made = threading.Event()

    def make():
        yield 1
        made.set()
        yield 2

    items = prefetch(make, 1)
    next(items)
    assert made.wait(5)
    items.close()
