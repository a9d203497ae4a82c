"""Whatever happens to a run on Ray, it trains on the same rows to the same bits."""

import pytest

from tests.system.chaos.ray_driver import INTERRUPTED, KILLED, out_of
from tests.system.chaos.training import Disturbance, Place, result, trained

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_killed_worker_a_killed_driver_and_a_stop_do_not_show(drive, tmp_path, undisturbed):
    disturbances = [
        Disturbance(12, "worker", rank=1, delay_s=0.01),
        Disturbance(33, "driver", slow_s=0.2),
        Disturbance(56, "SIGTERM", slow_s=0.05),
    ]
    place = Place(tmp_path).make(disturbances)
    assert drive(place) == [KILLED, INTERRUPTED, 0]
    assert (result(place, out_of(place)), trained(place)) == undisturbed
