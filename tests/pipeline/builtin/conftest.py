"""Look-ups in the lexicon by English word."""

from types import SimpleNamespace

import pytest

from pipeline.builtin import lexicon, verbs


@pytest.fixture
def words() -> SimpleNamespace:
    """`words.noun("dog")`, `words.adjective("old")`, `words.verb("see")`."""

    def noun(en: str) -> lexicon.Noun:
        kinds = ("being", "thing", "food", "place")
        return next(word for kind in kinds for word in lexicon.nouns(kind) if word.en == en)

    def adjective(en: str) -> lexicon.Adjective:
        kinds = ("being", "thing", "food", "place")
        return next(word for kind in kinds for word in lexicon.adjectives(kind) if word.en == en)

    def verb(en: str, verb_class: verbs.VerbClass = "transitive") -> verbs.Verb:
        return next(word for word in verbs.verbs(verb_class) if word.name == en)

    return SimpleNamespace(noun=noun, adjective=adjective, verb=verb)
