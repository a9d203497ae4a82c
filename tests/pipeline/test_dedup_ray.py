"""`dedup` on real Ray: the same artifact for any number of CPUs and any size of blocks."""

import random
import tempfile

import pytest

from pipeline import dedup as module
from pipeline.config import DedupConfig
from pipeline.dedup import dedup
from pipeline.ray_compute import RayCompute

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # it warns of its own settings
]


@pytest.fixture
def on_ray():
    """Starts a cluster of so many CPUs for the time of a call."""
    import ray
    import ray.data

    def run(function, num_cpus, block_bytes):
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            ray.init(
                address="local",
                num_cpus=num_cpus,
                include_dashboard=False,
                log_to_driver=False,
                object_store_memory=100 << 20,
                _temp_dir=folder,
            )
            try:
                context = ray.data.DataContext.get_current()
                patch.setattr(context, "target_max_block_size", block_bytes)
                return function(RayCompute(lambda: None))
            finally:
                ray.shutdown()

    return run


def test_cpus_and_blocks_change_nothing(on_ray, cleaned, downloaded, publish, monkeypatch):
    monkeypatch.setattr(module, "SPAN_ROWS", 80)
    monkeypatch.setattr(module, "PARTITION_ROWS", 120)
    draw = random.Random(1)
    pairs = [tuple("".join(draw.choices("abAB.", k=3)) for _ in range(2)) for _ in range(200)]
    parts = [cleaned(pairs[:90], "one", rows_per_file=33), cleaned(pairs[90:], "two")]
    held_out = {"given": downloaded(["aab"], ["bba"])}
    config = DedupConfig(holdout={"dev": 3, "test": 5})

    def make(**where):
        return publish("dedup", lambda job: dedup(config, parts, held_out, job), **where)

    expected = make()
    for num_cpus, block_bytes in ((1, 128 << 20), (2, 1)):
        found = on_ray(lambda compute: make(compute=compute), num_cpus, block_bytes)
        assert found.manifest.files == expected.manifest.files
        assert found.stats == expected.stats
