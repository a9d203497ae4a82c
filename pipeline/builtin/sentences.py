"""The kinds of sentences: one clause or two, in every order that German has for them.

A subordinate, relative or infinitive clause counts as subordinate: `draw_sentence` gives at most
one of them, `draw_long_sentence` two.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from pipeline.builtin import draw
from pipeline.builtin.clauses import (
    Clause,
    english_infinitive,
    english_question,
    english_statement,
    german_infinitive,
    german_inverted,
    german_statement,
    german_subordinate,
    relative_clause,
)
from pipeline.builtin.draw import Rules
from pipeline.builtin.facts import FACTS
from pipeline.builtin.grammar import EVERY, Tense
from pipeline.builtin.names import Word
from pipeline.builtin.phrases import PRONOUNS, Key, NounPhrase, Relative, Subject, WithClause
from pipeline.builtin.predicates import Action
from pipeline.builtin.rng import Rng
from pipeline.builtin.sentence import Sentence, sentence
from pipeline.builtin.verbs import ALLOWED, CAN, MODALS, MUST, WANT, VerbClass, verbs

Maker = Callable[[Rng], Sentence]

_DELIBERATE = Rules(is_action=True, adjunct_percent=10, negation_percent=0)
_TENSES: tuple[Tense, ...] = ("present", "past")
_SHORT = Rules(adjunct_percent=10)
# English has no "will" after "if", and "if she should" means something else than "should".
_CONDITION = Rules(tense="present", modals=(WANT, MUST, CAN, ALLOWED), adjunct_percent=10)
_CONSEQUENCE = Rules(tense="present", adjunct_percent=15)


class Link(NamedTuple):
    """A subordinating conjunction, and whether English has a comma before it."""

    en: str
    de: str
    has_comma: bool


_LINKS = (
    Link("because", "weil", has_comma=False),
    Link("although", "obwohl", has_comma=True),
)
_WHILE = Link("while", "während", has_comma=False)
_COORDINATIONS = (Word("and", " und"), Word("but", ", aber"), Word("or", " oder"))
_WHY_WHEN = (Word("why", "warum"), Word("when", "wann"))


def draw_sentence(rng: Rng) -> Sentence:
    """A sentence of any kind, with at most one subordinate clause."""
    return rng.pick(_kinds_by_weight())(rng)


def draw_long_sentence(rng: Rng) -> Sentence:
    """A sentence with two subordinate clauses."""
    return rng.pick(LONG_KINDS)(rng)


def statement(rng: Rng) -> Sentence:
    """Subject first."""
    clause = draw.clause(rng, Rules())
    return sentence(english_statement(clause), german_statement(clause), clause.keys)


def fronted(rng: Rng) -> Sentence:
    """Time or place first: the German subject moves behind its verb."""
    clause = draw.clause(rng, Rules(adjunct_percent=60))
    if clause.time:
        first, rest = clause.time, clause._replace(time=None)
    elif clause.place:
        first, rest = clause.place, clause._replace(place=None)
    else:
        return sentence(english_statement(clause), german_statement(clause), clause.keys)
    en = f"{first.en}, {english_statement(rest)}"
    return sentence(en, f"{first.de} {german_inverted(rest)}", clause.keys)


def question(rng: Rng) -> Sentence:
    """To be answered with yes or no."""
    clause = draw.clause(rng, Rules(negation_percent=0))
    return sentence(english_question(clause), german_inverted(clause), clause.keys, "?")


def open_question(rng: Rng) -> Sentence:
    """Why, when or where."""
    word, clause = _questioned(rng, Rules(adjunct_percent=20, negation_percent=0))
    en, de = english_question(clause), german_inverted(clause)
    return sentence(f"{word.en} {en}", f"{word.de} {de}", clause.keys, "?")


def coordination(rng: Rng) -> Sentence:
    """Two main clauses."""
    first, second, link = (
        draw.clause(rng, _SHORT),
        draw.clause(rng, _SHORT),
        rng.pick(_COORDINATIONS),
    )
    return sentence(
        f"{english_statement(first)}, {link.en} {english_statement(second)}",
        f"{german_statement(first)}{link.de} {german_statement(second)}",
        first.keys + second.keys,
    )


def reported(rng: Rng) -> Sentence:
    """What someone says or thinks."""
    lead = _lead(rng, "saying")
    clause = draw.clause(rng, _told(lead, Rules(adjunct_percent=20)))
    return sentence(
        f"{english_statement(lead)} that {english_statement(clause)}",
        f"{german_statement(lead)}, dass {german_subordinate(clause)}",
        lead.keys + clause.keys,
    )


def indirect_question(rng: Rng) -> Sentence:
    """What someone asks: whether, why, when or where."""
    lead = _lead(rng, "asking")
    rules = _told(lead, Rules(adjunct_percent=20, negation_percent=0))
    word, clause = _questioned(rng, rules)
    if rng.chance(50):
        word, clause = Word("whether", "ob"), draw.clause(rng, rules)
    return sentence(
        f"{english_statement(lead)} {word.en} {english_statement(clause)}",
        f"{german_statement(lead)}, {word.de} {german_subordinate(clause)}",
        lead.keys + clause.keys,
    )


def subordination(rng: Rng) -> Sentence:
    """Because or although, before or after the main clause."""
    main, sub, link = draw.clause(rng, _SHORT), draw.clause(rng, _SHORT), rng.pick(_LINKS)
    return _linked(rng, main, sub, link)


def meanwhile(rng: Rng) -> Sentence:
    """Two things at one time, so in one tense."""
    rules = Rules(tense=rng.pick(_TENSES), modals=(), adjunct_percent=10, negation_percent=0)
    return _linked(rng, draw.clause(rng, rules), draw.clause(rng, rules), _WHILE)


def condition(rng: Rng) -> Sentence:
    """If, before or after the main clause."""
    main, sub = draw.clause(rng, _CONSEQUENCE), draw.clause(rng, _CONDITION)
    return _linked(rng, main, sub, Link("if", "wenn", has_comma=False))


def relative_object(rng: Rng) -> Sentence:
    """The object has a relative clause, which German puts behind the verbs."""
    subject = draw.being(rng)
    tense: Tense = "past" if rng.chance(40) else "present"
    modal = rng.pick(MODALS) if tense == "present" and rng.chance(30) else None
    verb = rng.pick(verbs("transitive"))
    predicate = draw.transitive(rng, verb, subject, modal, pronoun_percent=0)
    assert isinstance(predicate.target, NounPhrase)
    main = Clause(subject, predicate, tense)
    clause = draw.clause(rng, _SHORT._replace(subject=Relative(predicate.target)))
    en, de = relative_clause(clause)
    return sentence(
        f"{english_statement(main)} {en}",
        f"{german_statement(main)}, {de}",
        main.keys + clause.keys,
    )


def relative_subject(rng: Rng) -> Sentence:
    """The subject has a relative clause."""
    subject = _with_clause(rng)
    main = draw.clause(rng, _SHORT._replace(subject=subject, is_action=True))
    return sentence(english_statement(main), german_statement(main), main.keys)


def intention(rng: Rng) -> Sentence:
    """What someone tries or plans to do."""
    lead = _lead(rng, "intending")
    clause = _infinitive(rng, lead.subject)
    return sentence(
        f"{english_statement(lead)} {english_infinitive(clause)}",
        f"{german_statement(lead)}, {german_infinitive(clause)}",
        lead.keys + clause.keys,
    )


def purpose(rng: Rng) -> Sentence:
    """What someone does something for: in order to."""
    main = draw.clause(rng, _DELIBERATE)
    words, keys = _purpose(rng, main.subject)
    return sentence(
        f"{english_statement(main)} {words.en}",
        f"{german_statement(main)}, {words.de}",
        main.keys + keys,
    )


def long_condition(rng: Rng) -> Sentence:
    """A condition, a main clause and its reason."""
    sub, main, reason = (draw.clause(rng, rules) for rules in (_CONDITION, _CONSEQUENCE, _SHORT))
    return sentence(
        f"if {english_statement(sub)}, {english_statement(main)} because {english_statement(reason)}",
        f"wenn {german_subordinate(sub)}, {german_inverted(main)}, weil {german_subordinate(reason)}",
        sub.keys + main.keys + reason.keys,
    )


def long_report(rng: Rng) -> Sentence:
    """Two things that someone says."""
    lead = _lead(rng, "saying")
    rules = _told(lead, _SHORT)
    first, second = draw.clause(rng, rules), draw.clause(rng, rules)
    return sentence(
        f"{english_statement(lead)} that {english_statement(first)} "
        f"and that {english_statement(second)}",
        f"{german_statement(lead)}, dass {german_subordinate(first)} "
        f"und dass {german_subordinate(second)}",
        lead.keys + first.keys + second.keys,
    )


def long_doubt(rng: Rng) -> Sentence:
    """A main clause, but: someone thinks something, for a reason."""
    main, lead = draw.clause(rng, _SHORT), _lead(rng, "saying")
    rules = _told(lead, _SHORT)
    first, second = draw.clause(rng, rules), draw.clause(rng, rules)
    return sentence(
        f"{english_statement(main)}, but {english_statement(lead)} "
        f"that {english_statement(first)} because {english_statement(second)}",
        f"{german_statement(main)}, aber {german_statement(lead)}, "
        f"dass {german_subordinate(first)}, weil {german_subordinate(second)}",
        main.keys + lead.keys + first.keys + second.keys,
    )


def long_relative(rng: Rng) -> Sentence:
    """What someone thinks of one who does something."""
    lead, subject = _lead(rng, "saying"), _with_clause(rng)
    clause = draw.clause(rng, _told(lead, _SHORT._replace(subject=subject, is_action=True)))
    return sentence(
        f"{english_statement(lead)} that {english_statement(clause)}",
        f"{german_statement(lead)}, dass {german_subordinate(clause)}",
        lead.keys + clause.keys,
    )


def long_purpose(rng: Rng) -> Sentence:
    """Something done in spite of one thing and for another."""
    sub = draw.clause(rng, _SHORT)
    main = draw.clause(rng, _DELIBERATE)
    words, keys = _purpose(rng, main.subject)
    return sentence(
        f"although {english_statement(sub)}, {english_statement(main)} {words.en}",
        f"obwohl {german_subordinate(sub)}, {german_inverted(main)}, {words.de}",
        sub.keys + main.keys + keys,
    )


CLAUSE_KINDS: dict[str, tuple[int, Maker]] = {
    "statement": (17, statement),
    "fronted": (9, fronted),
    "question": (8, question),
    "open question": (4, open_question),
    "coordination": (4, coordination),
    "reported": (6, reported),
    "indirect question": (4, indirect_question),
    "subordination": (5, subordination),
    "meanwhile": (2, meanwhile),
    "condition": (4, condition),
    "relative object": (4, relative_object),
    "relative subject": (3, relative_subject),
    "intention": (3, intention),
    "purpose": (2, purpose),
}
KINDS = {**CLAUSE_KINDS, **FACTS}  # name → (weight, maker)
LONG_KINDS = (long_condition, long_report, long_doubt, long_relative, long_purpose)


@cache
def _kinds_by_weight() -> tuple[Maker, ...]:
    return tuple(maker for weight, maker in KINDS.values() for _ in range(weight))


def _lead(rng: Rng, verb_class: VerbClass) -> Clause:
    """The main clause that another clause completes."""
    subject = rng.pick(PRONOUNS) if rng.chance(60) else draw.noun_phrase(rng, "being", 20)
    tense: Tense = "past" if rng.chance(35) else "present"
    return Clause(subject, Action(rng.pick(verbs(verb_class))), tense)


def _told(lead: Clause, rules: Rules) -> Rules:
    """The rules for what is said: the past, where the saying is in the past."""
    return rules._replace(tense="past") if lead.tense == "past" else rules


def _questioned(rng: Rng, rules: Rules) -> tuple[Word, Clause]:
    """A question word and a clause that lacks what it asks for."""
    clause = draw.clause(rng, rules)
    is_action = isinstance(clause.predicate, Action)
    if is_action and not clause.predicate.direction and not clause.place and rng.chance(50):
        return Word("where", "wo"), clause
    word = rng.pick(_WHY_WHEN)
    return word, clause._replace(time=None) if word.en == "when" else clause


def _linked(rng: Rng, main: Clause, sub: Clause, link: Link) -> Sentence:
    """Main clause and subordinate clause, either of them first."""
    keys = main.keys + sub.keys
    if rng.chance(50):
        comma = "," if link.has_comma else ""
        return sentence(
            f"{english_statement(main)}{comma} {link.en} {english_statement(sub)}",
            f"{german_statement(main)}, {link.de} {german_subordinate(sub)}",
            keys,
        )
    return sentence(
        f"{link.en} {english_statement(sub)}, {english_statement(main)}",
        f"{link.de} {german_subordinate(sub)}, {german_inverted(main)}",
        keys,
    )


def _with_clause(rng: Rng) -> WithClause:
    phrase = draw.noun_phrase(rng, "being", 25)
    while phrase.determiner is EVERY:  # "every man who …" may take a verb in the plural in mind
        phrase = draw.noun_phrase(rng, "being", 25)
    clause = draw.clause(rng, _SHORT._replace(subject=Relative(phrase)))
    en, de = relative_clause(clause)
    return WithClause(phrase, en, de, phrase.keys + clause.keys)


def _infinitive(rng: Rng, subject: Subject) -> Clause:
    rules = Rules(subject, "present", modals=(), is_action=True, adjunct_percent=10)
    return draw.clause(rng, rules)


def _purpose(rng: Rng, subject: Subject) -> tuple[Word, tuple[Key, ...]]:
    """Without a time: "um um 15:15 Uhr" would stumble."""
    clause = _infinitive(rng, subject)._replace(time=None)
    words = Word(f"in order {english_infinitive(clause)}", f"um {german_infinitive(clause)}")
    return words, clause.keys
