"""Phrases that can be spelt in English and, in any case, in German."""

from typing import NamedTuple

from pipeline.builtin import number_words
from pipeline.builtin.grammar import (
    NO,
    NUMBER,
    THE,
    A,
    Case,
    Determiner,
    Person,
    contract,
    german_adjective,
    german_determiner,
    german_noun,
    with_article,
)
from pipeline.builtin.lexicon import Adjective, Gender, Noun

# What a test slice can hold back: ("adjective", adjective, noun), ("object", verb, noun) or
# ("number", digits, ""), all in English.
Key = tuple[str, str, str]


class NounPhrase(NamedTuple):
    """Determiner or number, perhaps an adjective, noun."""

    noun: Noun
    determiner: Determiner
    is_plural: bool = False
    adjective: Adjective | None = None
    number: int = 0  # spelt where the determiner is NUMBER

    @property
    def person(self) -> Person:
        """The verb form that it asks for as a subject."""
        return "pl" if self.is_plural else "3s"

    @property
    def gender(self) -> Gender:
        """The gender that its articles show; the plural has none."""
        return "p" if self.is_plural else self.noun.gender

    @property
    def keys(self) -> tuple[Key, ...]:
        """What it joins: its adjective and noun, its number."""
        keys: tuple[Key, ...] = ()
        if self.adjective:
            keys = (("adjective", self.adjective.en, self.noun.en),)
        if self.determiner is NUMBER:
            keys = (*keys, ("number", str(self.number), ""))
        return keys

    def english(self) -> str:
        """As a subject or an object: "the old dog"."""
        noun = self.noun.en_plural if self.is_plural else self.noun.en
        phrase = f"{self.adjective.en} {noun}" if self.adjective else noun
        if self.determiner is A:
            return with_article(phrase)
        if self.determiner is NUMBER:
            return f"{number_words.english(self.number)} {phrase}"
        determiner = self.determiner.en_plural if self.is_plural else self.determiner.en
        return f"{determiner} {phrase}"

    def german(self, case: Case) -> str:
        """In a case: "den alten Hund"."""
        gender = self.gender
        if self.determiner is NUMBER:
            words = [number_words.german(self.number)]
        else:
            words = [german_determiner(self.determiner, case, gender)]
        if self.adjective:
            family = self.determiner.family
            words.append(german_adjective(self.adjective, family, case, gender))
        words.append(german_noun(self.noun, case, is_plural=self.is_plural))
        return " ".join(words)

    def negated(self) -> "NounPhrase":
        """The same with kein, for an indefinite phrase."""
        return self._replace(determiner=NO)


class Pronoun(NamedTuple):
    """A personal pronoun as subject and object."""

    en: str
    en_object: str
    de: str
    de_accusative: str
    de_dative: str
    person: Person
    keys: tuple[Key, ...] = ()

    def english(self) -> str:
        """As a subject."""
        return self.en

    def german(self, case: Case) -> str:
        """In a case: "er", "ihn", "ihm"."""
        return {"nom": self.de, "acc": self.de_accusative, "dat": self.de_dative}[case]


class Relative(NamedTuple):
    """The subject of a relative clause: who or that, der, die or das."""

    antecedent: NounPhrase
    keys: tuple[Key, ...] = ()

    @property
    def person(self) -> Person:
        """That of the noun it stands for."""
        return self.antecedent.person

    def english(self) -> str:
        """Who for beings, that for the rest."""
        return "who" if self.antecedent.noun.kind == "being" else "that"

    def german(self, case: Case) -> str:
        """The relative pronoun: it agrees with its noun and looks like the article."""
        return german_determiner(THE, case, self.antecedent.gender)


class WithClause(NamedTuple):
    """A noun phrase with its relative clause right after it: only before a verb."""

    phrase: NounPhrase
    en_clause: str
    de_clause: str
    keys: tuple[Key, ...]

    @property
    def person(self) -> Person:
        """That of the phrase."""
        return self.phrase.person

    def english(self) -> str:
        """Without commas: "the man who sings"."""
        return f"{self.phrase.english()} {self.en_clause}"

    def german(self, case: Case) -> str:
        """Between commas: "der Mann, der singt,"."""
        return f"{self.phrase.german(case)}, {self.de_clause},"


Subject = NounPhrase | Pronoun | Relative | WithClause

I = Pronoun("I", "me", "ich", "mich", "mir", "1s")  # noqa: E741 it is the word
YOU = Pronoun("you", "you", "du", "dich", "dir", "2s")
HE = Pronoun("he", "him", "er", "ihn", "ihm", "3s")
SHE = Pronoun("she", "her", "sie", "sie", "ihr", "3s")
WE = Pronoun("we", "us", "wir", "uns", "uns", "pl")
THEY = Pronoun("they", "them", "sie", "sie", "ihnen", "pl")
PRONOUNS = (I, YOU, HE, SHE, WE, THEY)


class Adjunct(NamedTuple):
    """A time, a place or a direction."""

    en: str
    de: str
    keys: tuple[Key, ...] = ()
    bars_negation: bool = False  # "every day": what is negated would be unclear


def inside(phrase: NounPhrase) -> Adjunct:
    """Where: in and the dative."""
    return beside("in", "in", phrase)


def beside(en: str, de: str, phrase: NounPhrase) -> Adjunct:
    """Where: any preposition that takes the dative for a place."""
    return Adjunct(
        f"{en} {phrase.english()}", contract(f"{de} {phrase.german('dat')}"), phrase.keys
    )


def into(phrase: NounPhrase) -> Adjunct:
    """Where to: in and the accusative."""
    return Adjunct(f"into {phrase.english()}", contract(f"in {phrase.german('acc')}"), phrase.keys)
