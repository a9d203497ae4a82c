"""How words bend: German articles, adjectives, nouns and verbs; English articles and verbs."""

from typing import Literal, NamedTuple

from pipeline.builtin.lexicon import Adjective, Gender, Noun
from pipeline.builtin.verbs import Modal, Verb

Case = Literal["nom", "acc", "dat"]
Person = Literal["1s", "2s", "3s", "pl"]  # German forms of all plural persons are one
Tense = Literal["present", "past"]
# What stands before an adjective decides its endings: a word like der, a word like ein, no ending.
Family = Literal["der", "ein", "bare"]


class Determiner(NamedTuple):
    """A word before the noun; `de_stem` takes the endings of its family."""

    en: str
    en_plural: str
    de_stem: str
    family: Family
    is_definite: bool


THE = Determiner("the", "the", "der", "der", is_definite=True)
THIS = Determiner("this", "these", "dies", "der", is_definite=True)
EVERY = Determiner("every", "", "jed", "der", is_definite=True)
A = Determiner("a", "", "ein", "ein", is_definite=False)
NO = Determiner("", "", "kein", "ein", is_definite=False)
SOME = Determiner("", "some", "einig", "bare", is_definite=False)
NUMBER = Determiner("", "", "", "bare", is_definite=False)
POSSESSIVES = (
    Determiner("my", "my", "mein", "ein", is_definite=True),
    Determiner("your", "your", "dein", "ein", is_definite=True),
    Determiner("his", "his", "sein", "ein", is_definite=True),
    Determiner("her", "her", "ihr", "ein", is_definite=True),
    Determiner("our", "our", "unser", "ein", is_definite=True),
    Determiner("their", "their", "ihr", "ein", is_definite=True),
)

_DEFINITE = {
    "nom": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}
_DER_ENDINGS = {  # dieser, jeder; einige
    "nom": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
_EIN_ENDINGS = {
    "nom": {"m": "", "f": "e", "n": "", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
_WEAK = {
    "nom": {"m": "e", "f": "e", "n": "e", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "e", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
_MIXED = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
_ADJECTIVE_ENDINGS = {"der": _WEAK, "ein": _MIXED, "bare": _DER_ENDINGS}


def german_determiner(determiner: Determiner, case: Case, gender: Gender) -> str:
    """The bent form: dem, diesem, einem, keinem; "" for a number, which is spelt elsewhere."""
    if determiner is THE:
        return _DEFINITE[case][gender]
    if determiner is NUMBER:
        return ""
    endings = _EIN_ENDINGS if determiner.family == "ein" else _DER_ENDINGS
    return determiner.de_stem + endings[case][gender]


def german_adjective(adjective: Adjective, family: Family, case: Case, gender: Gender) -> str:
    """The form before a noun: weak after der, mixed after ein, strong after no ending."""
    return adjective.de_stem + _ADJECTIVE_ENDINGS[family][case][gender]


def german_noun(noun: Noun, case: Case, *, is_plural: bool) -> str:
    """The noun in its case: dative plurals end in -n where they can, weak nouns in -(e)n."""
    if is_plural:
        takes_n = case == "dat" and noun.de_plural[-1] not in "ns"
        return noun.de_plural + ("n" if takes_n else "")
    return noun.de_plural if noun.is_weak and case != "nom" else noun.de


def german_present(verb: Verb, person: Person) -> str:
    """The finite form in the present, without a separable prefix."""
    if person == "2s":
        return verb.de_second
    if person == "3s":
        return verb.de_third
    return verb.de if person == "pl" else _german_first_person(verb.de)


def german_modal(modal: Modal, person: Person) -> str:
    """The finite form of a modal verb or of werden."""
    forms = {"1s": modal.de_first, "2s": modal.de_second, "3s": modal.de_third}
    return forms.get(person, modal.de_plural)


def german_auxiliary(infinitive: Literal["haben", "sein", "werden"], person: Person) -> str:
    """The present of the verbs that build perfect and passive."""
    return _AUXILIARIES[infinitive][person]


def german_past_auxiliary(infinitive: Literal["sein", "werden"], person: Person) -> str:
    """The simple past of sein (was) and werden (was done)."""
    return _PAST_AUXILIARIES[infinitive][person]


def zu_infinitive(infinitive: str, prefix: str = "") -> str:
    """With zu in front, or inside after a separable prefix: "zu sehen", "einzuladen"."""
    return f"{prefix}zu{infinitive}" if prefix else f"zu {infinitive}"


def contract(phrase: str) -> str:
    """Melt preposition and article where German does: "in dem" → "im", "von dem" → "vom"."""
    for apart, together in _CONTRACTIONS:
        if phrase.startswith(apart):
            return together + phrase[len(apart) :]
    return phrase


def with_article(phrase: str) -> str:
    """An English phrase with "a" or "an", by how its first word sounds."""
    return f"{'an' if _begins_with_vowel_sound(phrase) else 'a'} {phrase}"


def english_verb(verb: Verb, person: Person, tense: Tense) -> str:
    """The simple present or past, without its particle."""
    if tense == "past":
        return verb.en_past
    return verb.en_third if person == "3s" else verb.en


def english_do(person: Person, tense: Tense) -> str:
    """The form of "do" that carries questions and negations."""
    if tense == "past":
        return "did"
    return "does" if person == "3s" else "do"


def english_be(person: Person, tense: Tense) -> str:
    """The form of "be"."""
    if tense == "past":
        return "was" if person in ("1s", "3s") else "were"
    return {"1s": "am", "3s": "is"}.get(person, "are")


_AUXILIARIES: dict[str, dict[Person, str]] = {
    "haben": {"1s": "habe", "2s": "hast", "3s": "hat", "pl": "haben"},
    "sein": {"1s": "bin", "2s": "bist", "3s": "ist", "pl": "sind"},
    "werden": {"1s": "werde", "2s": "wirst", "3s": "wird", "pl": "werden"},
}
_PAST_AUXILIARIES: dict[str, dict[Person, str]] = {
    "sein": {"1s": "war", "2s": "warst", "3s": "war", "pl": "waren"},
    "werden": {"1s": "wurde", "2s": "wurdest", "3s": "wurde", "pl": "wurden"},
}
_CONTRACTIONS = (("in dem ", "im "), ("in das ", "ins "), ("von dem ", "vom "))
_CONSONANT_SOUND = ("uni", "use", "eu", "one")  # a unit, a useful hat, a European, a one-way street
_SILENT_H = ("hour", "honest", "honour", "heir")


def _begins_with_vowel_sound(phrase: str) -> bool:
    if phrase.startswith(_SILENT_H):
        return True
    return phrase[0] in "aeiou" and not phrase.startswith(_CONSONANT_SOUND)


def _german_first_person(infinitive: str) -> str:
    """Stem and -e: sehe, warte; verbs in -eln lose an e: sammle; wissen is its own."""
    if infinitive == "wissen":
        return "weiß"
    if infinitive.endswith("eln"):
        return infinitive[:-3] + "le"
    return infinitive[:-1] if infinitive.endswith("en") else infinitive[:-1] + "e"
