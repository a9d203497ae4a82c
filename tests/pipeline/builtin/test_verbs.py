from collections import Counter
from typing import get_args

from pipeline.builtin.verbs import MODALS, VerbClass, passive_verbs, verbs

CLASSES = get_args(VerbClass)
TAGS = {"being", "thing", "food", "passive", "dative", "sein", "into", "to"}


def all_verbs():
    return [verb for verb_class in CLASSES for verb in verbs(verb_class)]


def test_present_and_past_differ_in_every_person():
    for verb in all_verbs():
        assert verb.en_past not in (verb.en, verb.en_third)


def test_no_verb_of_a_class_has_two_translations():
    for verb_class in CLASSES:
        english = Counter(verb.name for verb in verbs(verb_class))
        german = Counter(verb.prefix + verb.de for verb in verbs(verb_class))
        assert max(english.values()) == 1
        assert max(german.values()) == 1


def test_separable_participles_keep_the_prefix():
    for verb in all_verbs():
        if verb.prefix:
            assert verb.de_participle.startswith(verb.prefix + "ge")
        assert verb.de_participle[-1] in "nt"


def test_german_finite_forms_have_their_endings():
    for verb in all_verbs():
        assert verb.de.endswith("n")
        assert verb.de_second.endswith("t")
        assert verb.de_third.endswith("t") or verb.de == "wissen"


def test_tags_are_known_and_every_transitive_verb_takes_something():
    assert {tag for verb in all_verbs() for tag in verb.tags} == TAGS
    for verb in verbs("transitive"):
        assert verb.tags & {"being", "thing", "food"}
    for verb in verbs("motion"):
        assert verb.tags & {"into", "to"}
        assert "sein" in verb.tags
    assert all("dative" not in verb.tags for verb in passive_verbs())


def test_should_is_the_subjunctive():
    should = next(modal for modal in MODALS if modal.en == "should")
    assert should[1:] == ("sollte", "solltest", "sollte", "sollten")
