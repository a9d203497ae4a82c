"""Whatever happens to a run, it trains on the same rows to the same bits. Here without Ray."""

import random

import pytest

from tests.system.chaos.commit_points import kill_at_each_operation
from tests.system.chaos.gloo import Gloo
from tests.system.chaos.training import (
    NUM_ROWS,
    TRAIN,
    Disturbance,
    Place,
    attempt,
    draw,
    result,
    run_to_end,
    sizes,
    trained,
)  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_each_row_is_trained_on_once_in_each_epoch(undisturbed):
    _, micro_batches = undisturbed
    rows = [row for *_, rows in micro_batches for row in rows]
    epochs = rows[:NUM_ROWS], rows[NUM_ROWS : 2 * NUM_ROWS]
    assert [sorted(epoch) for epoch in epochs] == [list(range(NUM_ROWS))] * 2
    assert epochs[0] != epochs[1]
    places = [(step, index) for step in range(1, TRAIN.max_steps + 1) for index in range(4)]
    assert [tuple(place) for *place, _ in micro_batches] == places


@pytest.mark.parametrize("num_workers", [2, 4])
def test_any_number_of_workers_gives_the_same(
    tmp_path, tokens, processes, undisturbed, num_workers
):
    place = Place(tmp_path).make()
    out = attempt(place, tokens, Gloo(processes, place), num_workers)
    assert (result(place, out), trained(place)) == undisturbed
    assert set().union(*sizes(place).values()) == {num_workers}


def test_a_run_killed_twenty_times_gives_the_same(tmp_path, tokens, processes, undisturbed):
    disturbances = draw(random.Random(1), ["worker", "all", "stop"])
    place = Place(tmp_path).make(disturbances)
    out = run_to_end(place, tokens, Gloo(processes, place), [2])
    assert (result(place, out), trained(place)) == undisturbed
    assert place.happened() == disturbances


def test_workers_that_become_fewer_and_more_give_the_same(tmp_path, tokens, processes, undisturbed):
    place = Place(tmp_path).make([Disturbance(23, "stop"), Disturbance(58, "all")])
    out = run_to_end(place, tokens, Gloo(processes, place), [2, 1, 4])
    assert (result(place, out), trained(place)) == undisturbed
    assert set().union(*sizes(place).values()) == {1, 2, 4}


def test_workers_that_outlive_their_driver_do_not_disturb_its_successors(
    tmp_path, tokens, processes, undisturbed
):
    steps = (11, 31, 51)
    place = Place(tmp_path).make([Disturbance(step, "driver", slow_s=0.02) for step in steps])
    out = run_to_end(place, tokens, Gloo(processes, place), [2])
    assert (result(place, out), trained(place)) == undisturbed


def test_a_run_killed_at_any_operation_on_its_folder_gives_the_same(tmp_path, tokens, processes):
    kill_at_each_operation(tmp_path, tokens, processes)
