from collections import Counter
from typing import get_args

from pipeline.builtin import lexicon
from pipeline.builtin.lexicon import Kind

KINDS = get_args(Kind)


def all_nouns():
    return [noun for kind in KINDS for noun in lexicon.nouns(kind)]


def all_adjectives():
    return {adjective for kind in KINDS for adjective in lexicon.adjectives(kind)}


def test_no_word_has_two_translations():
    nouns, adjectives = all_nouns(), list(all_adjectives())
    for words in (
        [noun.en for noun in nouns],
        [noun.en_plural for noun in nouns],
        [noun.de for noun in nouns],
        [adjective.en for adjective in adjectives],
        [adjective.de for adjective in adjectives],
    ):
        assert [word for word, count in Counter(words).items() if count > 1] == []


def test_every_english_noun_shows_its_number():
    assert [noun.en for noun in all_nouns() if noun.en == noun.en_plural] == []


def test_german_nouns_are_well_formed():
    for noun in all_nouns():
        assert noun.gender in ("m", "f", "n")
        assert noun.de[0].isupper()
        assert noun.de_plural[0].isupper()
        if noun.gender == "f":
            assert noun.de != noun.de_plural, "die X would be singular and plural"
        if noun.is_weak:
            assert noun.gender == "m"
            assert noun.de_plural.endswith("n")


def test_adjective_stems_lose_only_an_e():
    for adjective in all_adjectives():
        lost = {
            adjective.de,
            adjective.de.removesuffix("e"),
            adjective.de[:-2] + adjective.de[-1],
        }
        assert adjective.de_stem in lost
        assert adjective.de_comparative in ("", adjective.de_comparative.removesuffix("er") + "er")


def test_each_kind_has_nouns_and_adjectives():
    for kind in KINDS:
        assert all(noun.kind == kind for noun in lexicon.nouns(kind))
        assert all(kind[0] in adjective.kinds for adjective in lexicon.adjectives(kind))
        assert len(lexicon.nouns(kind)) >= 10
        assert len(lexicon.adjectives(kind)) >= 10
