"""The compute seam on a real Ray cluster of this machine."""

import pyarrow as pa
import pytest

from flows.cluster import Cluster
from pipeline.builtin.quickstart import pairs
from pipeline.cleaning.judging import Judge, judged
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.compute import Resources
from pipeline.config import TokenizeConfig
from pipeline.errors import CorpusError
from pipeline.ray_compute import RayCompute
from pipeline.tokenize import Encoded, tokenize

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),  # it warns of its own settings
]


@pytest.fixture(scope="module")
def compute():
    cluster = Cluster(None)
    yield RayCompute(cluster.connect)
    cluster.leave()


def test_results_come_in_the_order_of_items_as_what_they_were(compute):
    def encode(number):
        import time

        time.sleep(0.2 if number == 0 else 0)  # the first is done last
        return Encoded(number, 0, number, 1)

    done = []
    results = compute.map(encode, range(5), done.append)
    assert results == [Encoded(number, 0, number, 1) for number in range(5)]
    assert {type(result) for result in results} == {Encoded}
    assert done == [1, 2, 3, 4, 5]


def test_an_error_of_a_task_is_the_projects_own(compute):
    def fail(number):
        from pipeline.errors import CorpusError

        raise CorpusError(f"Row {number} must be text.")

    with pytest.raises(CorpusError, match=r"^Row 7 must be text\.$"):
        compute.map(fail, [7])


def test_rows_and_their_order_are_those_of_one_process(compute, deduped, vocabulary, publish):
    text = deduped(pairs("train", 300), rows_per_file=50)
    pieces = vocabulary(deduped(pairs("train", 300), "for the vocabulary"))
    config = TokenizeConfig(rows_per_shard=80)

    def content(**where):
        stage = publish("tokenize", lambda job: tokenize(config, text, pieces, {}, job), **where)
        return stage.manifest.content

    assert content(compute=compute) == content()


def test_pairs_are_judged_by_tasks_as_here(compute, make_job):
    src, tgt = zip(*pairs("train", 300), strict=True)
    raw = pa.RecordBatch.from_pydict({"src": src, "tgt": tgt, "line": range(1, 301)})
    raw = raw.cast(raw.schema.set(2, pa.field("line", pa.int64())))
    judge = Judge("own", RuleParameters(src_language="en", tgt_language="de"))
    found = list(
        judged([raw.slice(at, 100) for at in (0, 100, 200)], judge, make_job(compute=compute))
    )
    kept = [row for batch in found for row in batch.applied.kept.to_pylist()]
    assert kept == judge(raw).applied.kept.to_pylist()


def test_a_task_computes_with_one_thread(compute):
    def threads(_):
        import torch

        return torch.get_num_threads()

    assert compute.map(threads, range(3)) == [1, 1, 1]


def test_a_task_holds_what_is_reserved_for_it(compute):
    def held(_):
        import ray

        return ray.get_runtime_context().get_assigned_resources()

    found = compute.map(held, [0], need=Resources(2, memory=1 << 20))
    assert found == [{"CPU": 2.0, "memory": float(1 << 20)}]
    [(_, has)] = compute.machines()
    assert (has.num_cpus >= 2, has.memory > 1 << 30, has.custom) == (True, True, {})
