"""A Ray head that the tests of this folder share."""

import pytest

from tests.system.cluster.head import ray_head


@pytest.fixture(scope="session")
def head():
    with ray_head() as head:
        yield head
