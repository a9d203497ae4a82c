import pytest

from pipeline.builtin import clauses
from pipeline.builtin.clauses import Clause
from pipeline.builtin.grammar import NUMBER, POSSESSIVES, THE, A
from pipeline.builtin.phrases import (
    HE,
    SHE,
    YOU,
    Adjunct,
    I,
    NounPhrase,
    Relative,
    inside,
    into,
)
from pipeline.builtin.predicates import Action, Passive, State
from pipeline.builtin.verbs import ALLOWED, CAN, MUST, SHOULD, WANT, WILL

TODAY = Adjunct("today", "heute")


@pytest.fixture
def the(words):
    return lambda en, **more: NounPhrase(words.noun(en), THE, **more)


@pytest.fixture
def a(words):
    return lambda en, **more: NounPhrase(words.noun(en), A, **more)


def test_verb_second_in_statements(words, the, a):
    clause = Clause(the("man"), Action(words.verb("buy"), target=a("hat")), time=TODAY)
    assert clauses.english_statement(clause) == "the man buys a hat today"
    assert clauses.german_statement(clause) == "der Mann kauft heute einen Hut"


def test_known_objects_come_before_the_place_and_new_ones_after(words, the, a):
    park = inside(the("park"))
    known = Clause(HE, Action(words.verb("buy"), target=the("hat")), place=park)
    new = Clause(HE, Action(words.verb("buy"), target=a("hat")), place=park)
    assert clauses.german_statement(known) == "er kauft den Hut im Park"
    assert clauses.german_statement(new) == "er kauft im Park einen Hut"


def test_the_perfect_closes_with_the_participle(words, the):
    clause = Clause(I, Action(words.verb("invite"), target=the("boy")), "past")
    assert clauses.english_statement(clause) == "I invited the boy"
    assert clauses.german_statement(clause) == "ich habe den Jungen eingeladen"
    assert clauses.german_subordinate(clause) == "ich den Jungen eingeladen habe"


def test_motion_takes_sein_and_the_accusative(words, the):
    go = Action(words.verb("go", "motion"), direction=into(the("house")))
    clause = Clause(I, go, "past", time=TODAY)
    assert clauses.english_statement(clause) == "I went into the house today"
    assert clauses.german_statement(clause) == "ich bin heute ins Haus gegangen"


def test_questions_put_the_verb_first(words, the):
    clause = Clause(the("dog"), Action(words.verb("see"), target=the("cat")))
    assert clauses.english_question(clause) == "does the dog see the cat"
    assert clauses.german_inverted(clause) == "sieht der Hund die Katze"
    past = clause._replace(tense="past")
    assert clauses.english_question(past) == "did the dog see the cat"
    assert clauses.german_inverted(past) == "hat der Hund die Katze gesehen"


def test_separable_prefixes_part_and_join(words, the):
    clause = Clause(YOU, Action(words.verb("pick up"), target=the("aunt")))
    assert clauses.english_statement(clause) == "you pick up the aunt"
    assert clauses.german_statement(clause) == "du holst die Tante ab"
    assert clauses.german_inverted(clause) == "holst du die Tante ab"
    assert clauses.german_subordinate(clause) == "du die Tante abholst"
    assert clauses.english_infinitive(clause) == "to pick up the aunt"
    assert clauses.german_infinitive(clause) == "die Tante abzuholen"
    modal = clause._replace(predicate=clause.predicate._replace(modal=CAN))
    assert clauses.german_statement(modal) == "du kannst die Tante abholen"
    assert clauses.german_subordinate(modal) == "du die Tante abholen kannst"


def test_english_particles_follow_a_pronoun(words):
    clause = Clause(HE, Action(words.verb("pick up"), target=I))
    assert clauses.english_statement(clause) == "he picks me up"
    assert clauses.german_statement(clause) == "er holt mich ab"


def test_object_pronouns_come_before_a_noun_subject_unless_it_is_sie(words, the):
    see = words.verb("see")
    him = Clause(the("dog"), Action(see, target=HE), time=TODAY)
    assert clauses.german_statement(him) == "der Hund sieht ihn heute"
    assert clauses.german_inverted(him) == "sieht ihn der Hund heute"
    assert clauses.german_subordinate(him) == "der Hund ihn heute sieht"
    her = him._replace(predicate=Action(see, target=SHE))
    assert clauses.german_inverted(her) == "sieht der Hund sie heute"
    assert clauses.german_inverted(him._replace(subject=YOU)) == "siehst du ihn heute"


def test_giving_takes_dative_before_accusative(words, the, a):
    give = words.verb("give", "giving")
    clause = Clause(I, Action(give, None, the("child"), a("book")), negated=True)
    assert clauses.english_statement(clause) == "I do not give the child a book"
    assert clauses.german_statement(clause) == "ich gebe dem Kind kein Buch"
    him = Clause(the("woman"), Action(give, None, HE, the("book")), negated=True)
    assert clauses.english_statement(him) == "the woman does not give him the book"
    assert clauses.german_statement(him) == "die Frau gibt ihm das Buch nicht"


def test_some_verbs_take_the_dative(words, the, a):
    helps = words.verb("help")
    clause = Clause(SHE, Action(helps, target=the("hero")))
    assert clauses.german_statement(clause) == "sie hilft dem Helden"
    none = Clause(SHE, Action(helps, target=a("hero")), negated=True)
    assert clauses.german_statement(none) == "sie hilft keinem Helden"


def test_nicht_stands_behind_known_objects_and_before_the_place(words, the):
    clause = Clause(
        *(HE, Action(words.verb("buy"), target=the("hat")), "past"),
        negated=True,
        time=TODAY,
        place=inside(the("park")),
    )
    assert clauses.english_statement(clause) == "he did not buy the hat in the park today"
    assert clauses.german_statement(clause) == "er hat heute den Hut nicht im Park gekauft"
    sleep = Clause(HE, Action(words.verb("sleep", "intransitive")), negated=True)
    assert clauses.german_statement(sleep) == "er schläft nicht"


@pytest.mark.parametrize(
    ("modal", "forms", "de"),
    [
        (WANT, ("wants to", "does not want to", "does he want to"), "will"),
        (MUST, ("must", "does not have to", "does he have to"), "muss"),
        (CAN, ("can", "cannot", "can he"), "kann"),
        (SHOULD, ("should", "should not", "should he"), "sollte"),
        (ALLOWED, ("is allowed to", "is not allowed to", "is he allowed to"), "darf"),
        (WILL, ("will", "will not", "will he"), "wird"),
    ],
)
def test_modal_verbs_mean_the_same_when_denied_and_asked(words, the, modal, forms, de):
    en, en_not, en_question = forms
    clause = Clause(HE, Action(words.verb("sell"), modal, target=the("car")))
    assert clauses.english_statement(clause) == f"he {en} sell the car"
    assert clauses.german_statement(clause) == f"er {de} das Auto verkaufen"
    assert clauses.english_question(clause) == f"{en_question} sell the car"
    assert clauses.german_inverted(clause) == f"{de} er das Auto verkaufen"
    denied = clause._replace(negated=True)
    assert clauses.english_statement(denied) == f"he {en_not} sell the car"
    assert clauses.german_statement(denied) == f"er {de} das Auto nicht verkaufen"
    assert clauses.german_subordinate(denied) == f"er das Auto nicht verkaufen {de}"


def test_kein_denies_new_objects_of_modal_verbs(words, a):
    clause = Clause(I, Action(words.verb("buy"), MUST, target=a("hat")), negated=True)
    assert clauses.english_statement(clause) == "I do not have to buy a hat"
    assert clauses.german_statement(clause) == "ich muss keinen Hut kaufen"


def test_the_passive_takes_werden(words, the):
    clause = Clause(the("hat"), Passive(words.verb("throw away"), the("boy")), "past")
    assert clauses.english_statement(clause) == "the hat was thrown away by the boy"
    assert clauses.german_statement(clause) == "der Hut wurde vom Jungen weggeworfen"
    assert clauses.german_subordinate(clause) == "der Hut vom Jungen weggeworfen wurde"
    assert clauses.english_question(clause) == "was the hat thrown away by the boy"
    assert clause.keys == (("object", "throw away", "hat"),)


def test_states_and_comparisons_close_with_the_adjective(words, the):
    state = State(words.adjective("expensive"), the("lamp"))
    clause = Clause(the("hat", is_plural=True), state, negated=True, time=TODAY)
    assert (
        clauses.english_statement(clause) == "the hats are not more expensive than the lamp today"
    )
    assert clauses.german_statement(clause) == "die Hüte sind heute nicht teurer als die Lampe"
    assert clauses.german_subordinate(clause) == "die Hüte heute nicht teurer als die Lampe sind"
    assert clause.keys == (("adjective", "expensive", "hat"),)


def test_relative_clauses_end_with_their_verb(words, the, a):
    clause = Clause(Relative(a("witch")), Action(words.verb("invite"), target=YOU))
    assert clauses.relative_clause(clause) == ("who invites you", "die dich einlädt")


def test_numbers_and_possessives_agree_with_their_verb(words):
    five = NounPhrase(words.noun("dog"), NUMBER, True, None, 5)
    hat = NounPhrase(words.noun("hat"), POSSESSIVES[4])
    clause = Clause(five, Action(words.verb("find"), target=hat))
    assert clauses.english_statement(clause) == "five dogs find our hat"
    assert clauses.german_statement(clause) == "fünf Hunde finden unseren Hut"
    assert clause.keys == (("number", "5", ""), ("object", "find", "hat"))
