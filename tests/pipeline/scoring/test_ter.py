import random

import pytest
from sacrebleu.metrics.lib_ter import translation_edit_rate

from pipeline.scoring.ter import num_edits


def pairs(seed, num_words, most, count):
    """Made-up hypotheses and references; half of the hypotheses are shuffled phrases of theirs."""
    draw = random.Random(seed)
    for _ in range(count):
        ref = [str(draw.randrange(num_words)) for _ in range(draw.randint(0, most))]
        if draw.random() < 0.5:
            hyp = [str(draw.randrange(num_words)) for _ in range(draw.randint(0, most))]
        else:
            cut = draw.randint(0, len(ref))
            hyp = ref[cut:] + ref[:cut]
            hyp = [word if draw.random() < 0.8 else "new" for word in hyp if draw.random() < 0.9]
        yield hyp, ref


@pytest.mark.parametrize(
    ("num_words", "most", "count"), [(3, 8, 300), (10, 15, 150), (40, 40, 40), (400, 90, 15)]
)
def test_edits_are_those_that_sacrebleu_counts(num_words, most, count):
    for hyp, ref in pairs(num_words, num_words, most, count):
        assert num_edits(hyp, ref) == translation_edit_rate(hyp, ref)[0], (hyp, ref)


@pytest.mark.parametrize(
    ("hyp", "ref", "edits"),
    [
        ("", "", 0),
        ("a b", "", 2),
        ("", "a b", 2),
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("c d a b", "a b c d", 1),
        ("a a a a a a", "a", 5),
    ],
)
def test_a_moved_phrase_is_one_edit_and_so_is_a_word(hyp, ref, edits):
    assert num_edits(hyp.split(), ref.split()) == edits


@pytest.mark.parametrize(("len_hyp", "len_ref"), [(70, 8), (4, 120), (2, 130), (60, 60)])
def test_lengths_far_apart_keep_to_the_beam_of_sacrebleu(len_hyp, len_ref):
    draw = random.Random(len_hyp)
    hyp, ref = ([str(draw.randrange(30)) for _ in range(size)] for size in (len_hyp, len_ref))
    assert num_edits(hyp, ref) == translation_edit_rate(hyp, ref)[0]
