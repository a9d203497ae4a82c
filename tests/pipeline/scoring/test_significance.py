import numpy as np
import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from pipeline.scoring.metrics import Kind, measures
from pipeline.scoring.significance import (
    approximate_randomisation,
    interval,
    paired_bootstrap,
    resampled,
)

REFERENCES = [f"the {a} sees the {b} in the {c}" for a in ("man", "dog") for b in ("cat", "house", "tree")
              for c in ("wood", "garden", "street", "rain", "old town")]  # fmt: skip
FIRST = [text.replace("sees", "is seeing") if at % 3 else text for at, text in enumerate(REFERENCES)]  # fmt: skip
SECOND = [text.replace("the", "a") if at % 2 else text for at, text in enumerate(REFERENCES)]
CHRF = measures(Kind("en", "13a"))[1]


def counts(texts):
    return CHRF.counts_of(texts, REFERENCES)


@pytest.mark.parametrize(
    ("kind", "test"), [("bs", paired_bootstrap), ("ar", approximate_randomisation)]
)
def test_p_values_are_sacrebleus_own(kind, test, monkeypatch):
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    systems = [("first", FIRST), ("second", SECOND)]
    metrics = {"chrF2": sacrebleu.CHRF()}
    _, found = PairedTest(systems, metrics, [REFERENCES], test_type=kind)()
    expected = found["chrF2"][1].p_value
    assert test(counts(FIRST), counts(SECOND), CHRF.score_of) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomisation])
def test_a_system_does_not_differ_from_itself(test):
    assert test(counts(FIRST), counts(FIRST), CHRF.score_of) == 1.0


@pytest.mark.parametrize("test", [paired_bootstrap, approximate_randomisation])
def test_the_order_of_two_systems_does_not_matter(test):
    first, second = counts(FIRST), counts(SECOND)
    assert test(first, second, CHRF.score_of) == test(second, first, CHRF.score_of)


def test_a_resample_has_as_many_sentences_and_comes_again_the_same():
    ones = np.ones((7, 1))
    assert {float(sums[0]) for sums in resampled(ones)} == {7.0}
    values = np.arange(7.0)[:, None]
    first, again = (np.array(list(resampled(values))) for _ in range(2))
    assert (first == again).all()
    assert len(np.unique(first)) > 5


def test_the_interval_narrows_with_more_sentences():
    few, many = (counts(FIRST)[:5], np.tile(counts(FIRST), (20, 1)))
    widths = [high - low for low, high in (interval(few, CHRF.score_of), interval(many, CHRF.score_of))]  # fmt: skip
    assert widths[1] < widths[0] / 3
