"""Batches judged by tasks give the rows that one batch judged here gives."""

import pickle

import pyarrow as pa
import pytest

from pipeline.cleaning import judging
from pipeline.cleaning.judging import Judge, judged
from pipeline.cleaning.rules_parameters import RuleParameters
from pipeline.compute import ONE_CPU, InProcess

JUDGE = Judge("own", RuleParameters(src_language="en", tgt_language="de", replace=[("seven", "7")]))
ENGLISH = ["The clock strikes  seven.", "", "Salt &amp; pepper.", "x", "One word against many."]
GERMAN = ["Die Uhr schlägt 7.", "Nichts links.", "Salz &amp; Pfeffer.", "x" * 90, "sehr " * 40]


class Pickling(InProcess):
    """As a cluster does: what goes to tasks and comes back is copied, and may be done twice."""

    calls = 0

    def map(self, function, items, on_done=None, need=ONE_CPU):
        self.calls += 1
        function, items = pickle.loads(pickle.dumps((function, items)))
        super().map(function, items[:1])
        return pickle.loads(pickle.dumps(super().map(function, items, on_done)))


def raws(num_rows, rows_at_once):
    src = [ENGLISH[row % 5] for row in range(num_rows)]
    tgt = [GERMAN[row % 5] for row in range(num_rows)]
    whole = pa.RecordBatch.from_arrays(
        [pa.array(src), pa.array(tgt), pa.array(range(1, num_rows + 1), pa.int64())],
        names=["src", "tgt", "line"],
    )
    return [whole.slice(start, rows_at_once) for start in range(0, num_rows, rows_at_once)]


def rows(found):
    kept, rejected, num_changed = [], [], 0
    for applied, changed in found:
        kept += applied.kept.to_pylist()
        rejected += applied.rejected.to_pylist()
        num_changed += changed
    return kept, rejected, num_changed


@pytest.mark.parametrize("rows_at_once", [1, 3, 7, 39, 40])
def test_rows_do_not_depend_on_how_they_were_spread(make_job, monkeypatch, rows_at_once):
    monkeypatch.setattr(judging, "BATCHES_AT_ONCE", 4)
    job = make_job(compute=Pickling())
    expected = JUDGE(raws(40, 40)[0])
    found = rows(judged(raws(40, rows_at_once), JUDGE, job))
    assert found == (
        expected.applied.kept.to_pylist(),
        expected.applied.rejected.to_pylist(),
        expected.num_changed,
    )
    assert len(found[0]) == 16
    assert list(job.out.iterdir()) == []


def test_one_batch_needs_no_cluster(make_job):
    compute = Pickling()
    assert len(list(judged(raws(40, 40), JUDGE, make_job(compute=compute)))) == 1
    assert list(judged([], JUDGE, make_job("other", compute=compute))) == []
    assert compute.calls == 0


def test_no_more_batches_are_stored_than_are_judged_at_once(make_job, monkeypatch):
    monkeypatch.setattr(judging, "BATCHES_AT_ONCE", 4)
    job = make_job(compute=Pickling())
    most = 0
    for _ in judged(raws(40, 2), JUDGE, job):
        most = max(most, len(list(job.out.glob("scratch/*"))))
    assert most == 4
