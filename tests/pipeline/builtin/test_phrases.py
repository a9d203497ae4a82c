from pipeline.builtin.grammar import EVERY, NUMBER, POSSESSIVES, SOME, THE, THIS, A
from pipeline.builtin.phrases import (
    SHE,
    THEY,
    NounPhrase,
    Relative,
    WithClause,
    beside,
    inside,
    into,
)

CASES = ("nom", "acc", "dat")


def spelt(phrase):
    return [phrase.english(), *(phrase.german(case) for case in CASES)]


def test_phrases_bend_as_a_whole(words):
    dog, old = words.noun("dog"), words.adjective("old")
    assert spelt(NounPhrase(dog, THE, False, old)) == [
        *("the old dog", "der alte Hund", "den alten Hund", "dem alten Hund")
    ]
    assert spelt(NounPhrase(dog, A, False, old)) == [
        *("an old dog", "ein alter Hund", "einen alten Hund", "einem alten Hund")
    ]
    assert spelt(NounPhrase(dog, NUMBER, True, old, 21)) == [
        "twenty-one old dogs",
        "einundzwanzig alte Hunde",
        "einundzwanzig alte Hunde",
        "einundzwanzig alten Hunden",
    ]
    assert spelt(NounPhrase(dog, SOME, True, old)) == [
        *("some old dogs", "einige alte Hunde", "einige alte Hunde", "einigen alten Hunden")
    ]
    assert spelt(NounPhrase(dog, POSSESSIVES[0], True, old)) == [
        *("my old dogs", "meine alten Hunde", "meine alten Hunde", "meinen alten Hunden")
    ]
    assert spelt(NounPhrase(dog, THIS, True)) == [
        *("these dogs", "diese Hunde", "diese Hunde", "diesen Hunden")
    ]
    assert spelt(NounPhrase(words.noun("hero"), EVERY)) == [
        *("every hero", "jeder Held", "jeden Helden", "jedem Helden")
    ]


def test_kein_bends_like_ein(words):
    phrase = NounPhrase(words.noun("hat"), A, False, words.adjective("expensive"))
    assert phrase.negated().german("acc") == "keinen teuren Hut"


def test_keys_name_what_is_joined(words):
    phrase = NounPhrase(words.noun("hat"), NUMBER, True, words.adjective("red"), 25)
    assert phrase.keys == (("adjective", "red", "hat"), ("number", "25", ""))


def test_pronouns_have_three_cases():
    assert [SHE.german(case) for case in CASES] == ["sie", "sie", "ihr"]
    assert [THEY.german(case) for case in CASES] == ["sie", "sie", "ihnen"]


def test_relative_pronouns_agree_with_their_noun(words):
    man, hat = NounPhrase(words.noun("man"), A), NounPhrase(words.noun("hat"), THE, True)
    assert (Relative(man).english(), Relative(man).german("nom")) == ("who", "der")
    assert (Relative(hat).english(), Relative(hat).german("nom")) == ("that", "die")


def test_a_relative_clause_stands_between_commas(words):
    man = NounPhrase(words.noun("man"), THE)
    subject = WithClause(man, "who sings", "der singt", ())
    assert subject.english() == "the man who sings"
    assert subject.german("nom") == "der Mann, der singt,"


def test_places_take_the_dative_and_directions_the_accusative(words):
    garden = NounPhrase(words.noun("garden"), THE, False, words.adjective("dark"))
    house = NounPhrase(words.noun("house"), THE)
    assert inside(garden)[:2] == ("in the dark garden", "im dunklen Garten")
    assert into(garden)[:2] == ("into the dark garden", "in den dunklen Garten")
    assert into(house)[:2] == ("into the house", "ins Haus")
    assert beside("behind", "hinter", house)[:2] == ("behind the house", "hinter dem Haus")
    assert inside(garden).keys == (("adjective", "dark", "garden"),)
