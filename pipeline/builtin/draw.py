"""Draws phrases, predicates and clauses that make a grammatical sentence, seldom a likely one."""

from typing import NamedTuple

from pipeline.builtin import lexicon, names, slots
from pipeline.builtin.clauses import Clause
from pipeline.builtin.grammar import (
    EVERY,
    NUMBER,
    POSSESSIVES,
    SOME,
    THE,
    THIS,
    A,
    Determiner,
    Tense,
)
from pipeline.builtin.lexicon import Adjective, Kind
from pipeline.builtin.phrases import (
    HE,
    PRONOUNS,
    SHE,
    THEY,
    WE,
    YOU,
    Adjunct,
    I,
    NounPhrase,
    Pronoun,
    Relative,
    Subject,
    beside,
    inside,
    into,
)
from pipeline.builtin.predicates import Action, Passive, Predicate, State
from pipeline.builtin.rng import Rng
from pipeline.builtin.verbs import MODALS, WILL, Modal, Verb, passive_verbs, verbs

_KINDS_OF_OBJECTS: tuple[Kind, ...] = ("thing", "thing", "being", "food")
# Nobody sees a part of themself as another: no "I see us".
_OTHERS = {
    I: (YOU, HE, SHE, THEY),
    WE: (YOU, HE, SHE, THEY),
    YOU: (I, HE, SHE, WE, THEY),
}


class Rules(NamedTuple):
    """What a clause must be like to fit in its place; None leaves it to chance."""

    subject: Subject | None = None
    tense: Tense | None = None
    modals: tuple[Modal, ...] = MODALS
    is_action: bool = False
    adjunct_percent: int = 33  # time and place, each
    negation_percent: int = 16


def clause(rng: Rng, rules: Rules) -> Clause:
    """A clause by the rules."""
    tense: Tense = rules.tense or ("past" if rng.chance(40) else "present")
    modal = None
    if tense == "present" and rules.modals and rng.chance(35):
        modal = rng.pick(rules.modals)
    subject, predicate = _core(rng, rules, modal)
    place = None
    if not isinstance(predicate, State) and not predicate.direction:
        is_lonely = isinstance(predicate, Action) and not predicate.target
        percent = rules.adjunct_percent + (30 if is_lonely else 0)
        place = a_place(rng) if rng.chance(percent) else None
    time = None
    if rng.chance(rules.adjunct_percent):
        time = _time(rng, tense, modal, predicate)
    negated = rng.chance(rules.negation_percent) and _can_be_negated(subject, predicate, time)
    return Clause(subject, predicate, tense, negated, time, place)


def being(rng: Rng) -> Subject:
    """A pronoun, or a phrase for a being."""
    return rng.pick(PRONOUNS) if rng.chance(28) else noun_phrase(rng, "being")


def noun_phrase(rng: Rng, kind: Kind, adjective_percent: int = 45) -> NounPhrase:
    """A phrase with any noun of a kind."""
    noun = rng.pick(lexicon.nouns(kind))
    adjective = None
    if rng.chance(adjective_percent):
        adjective = rng.pick(lexicon.adjectives(kind))
    determiner = _determiner(rng)
    if determiner is NUMBER:
        return NounPhrase(noun, NUMBER, True, adjective, slots.counted(rng))
    always_plural = determiner is SOME
    is_plural = always_plural or (determiner not in (A, EVERY) and rng.chance(27))
    return NounPhrase(noun, determiner, is_plural, adjective)


def a_place(rng: Rng) -> Adjunct:
    """Where something happens."""
    dice = rng.below(100)
    if dice < 25:
        country = rng.pick(names.COUNTRIES)
        return Adjunct(f"in {country.en}", f"in {country.de}")
    if dice < 80:
        return inside(_place_phrase(rng))
    preposition = rng.pick(names.PREPOSITIONS)
    return beside(preposition.en, preposition.de, _place_phrase(rng))


def action(rng: Rng, subject: Subject, modal: Modal | None) -> Action:
    """Something that a being does."""
    dice = rng.below(100)
    if dice < 19:
        return Action(rng.pick(verbs("intransitive")), modal)
    if dice < 31:
        return _motion(rng, modal)
    if dice < 46:
        recipient = _recipient(rng, subject)
        return Action(rng.pick(verbs("giving")), modal, recipient, noun_phrase(rng, "thing"))
    return transitive(rng, rng.pick(verbs("transitive")), subject, modal)


def transitive(
    rng: Rng, verb: Verb, subject: Subject, modal: Modal | None, pronoun_percent: int = 25
) -> Action:
    """A verb with an object it goes with."""
    if "being" in verb.tags and rng.chance(pronoun_percent):
        return Action(verb, modal, target=rng.pick(_others(subject)))
    return Action(verb, modal, target=noun_phrase(rng, object_kind(rng, verb)))


def object_kind(rng: Rng, verb: Verb) -> Kind:
    """A kind of thing that the verb is done to."""
    kinds = tuple(kind for kind in _KINDS_OF_OBJECTS if kind in verb.tags)
    return rng.pick(kinds)


def _core(rng: Rng, rules: Rules, modal: Modal | None) -> tuple[Subject, Predicate]:
    """Subject and predicate; only actions have modal verbs."""
    dice = 0 if rules.is_action or modal else rng.below(100)
    if dice >= 87:
        return _passive(rng, rules.subject)
    if dice >= 70:
        return _state(rng, rules.subject)
    subject = rules.subject or being(rng)
    if isinstance(subject, Relative) and subject.antecedent.noun.kind != "being":
        return _state(rng, subject)
    return subject, action(rng, subject, modal)


def _motion(rng: Rng, modal: Modal | None) -> Action:
    verb = rng.pick(verbs("motion"))
    if "into" in verb.tags and ("to" not in verb.tags or rng.chance(60)):
        return Action(verb, modal, direction=into(_place_phrase(rng)))
    country = rng.pick(names.COUNTRIES)
    return Action(verb, modal, direction=Adjunct(f"to {country.en}", f"nach {country.de}"))


def _passive(rng: Rng, given: Subject | None) -> tuple[Subject, Passive]:
    verb = rng.pick(passive_verbs())
    if isinstance(given, Relative):
        kind = given.antecedent.noun.kind
        verb = rng.pick(tuple(verb for verb in passive_verbs() if kind in verb.tags))
    subject = given or noun_phrase(rng, object_kind(rng, verb))
    agent = noun_phrase(rng, "being") if rng.chance(30) else None
    return subject, Passive(verb, agent)


def _state(rng: Rng, given: Subject | None) -> tuple[Subject, State]:
    """A subject and how it is; the adjective is not said twice."""
    subject: Subject = given or _state_subject(rng)
    phrase = subject.antecedent if isinstance(subject, Relative) else subject
    kind = phrase.noun.kind if isinstance(phrase, NounPhrase) else "being"
    adjective = rng.pick(lexicon.adjectives(kind))
    while isinstance(phrase, NounPhrase) and adjective == phrase.adjective:
        adjective = rng.pick(lexicon.adjectives(kind))
    return subject, State(adjective, _standard(rng, adjective, kind, phrase))


def _state_subject(rng: Rng) -> NounPhrase | Pronoun:
    if rng.chance(20):
        return rng.pick(PRONOUNS)
    return noun_phrase(rng, rng.pick(("being", "being", "thing", "food")), adjective_percent=15)


def _standard(rng: Rng, adjective: Adjective, kind: Kind, subject: Subject) -> NounPhrase | None:
    """What the subject is compared with: another noun of its kind."""
    if not adjective.en_comparative or not rng.chance(45):
        return None
    standard = noun_phrase(rng, kind, adjective_percent=0)
    is_same = isinstance(subject, NounPhrase) and standard.noun == subject.noun
    return None if is_same else standard


def _time(rng: Rng, tense: Tense, modal: Modal | None, predicate: Predicate) -> Adjunct:
    if tense == "past":
        return slots.past_time(rng)
    if isinstance(predicate, State):
        return Adjunct("today", "heute")
    return slots.future_time(rng) if modal is WILL else slots.present_time(rng)


def _place_phrase(rng: Rng) -> NounPhrase:
    noun = rng.pick(lexicon.nouns("place"))
    adjective = rng.pick(lexicon.adjectives("place")) if rng.chance(35) else None
    determiner = rng.pick((THE, THE, THE, THE, THE, A, A, THIS, rng.pick(POSSESSIVES)))
    return NounPhrase(noun, determiner, False, adjective)


def _recipient(rng: Rng, subject: Subject) -> NounPhrase | Pronoun:
    return rng.pick(_others(subject)) if rng.chance(30) else noun_phrase(rng, "being")


def _others(subject: Subject) -> tuple[Pronoun, ...]:
    return _OTHERS.get(subject, PRONOUNS) if isinstance(subject, Pronoun) else PRONOUNS


def _determiner(rng: Rng) -> Determiner:
    dice = rng.below(100)
    for limit, determiner in (
        (40, THE),
        (60, A),
        (76, NUMBER),
        (84, THIS),
        (88, SOME),
        (91, EVERY),
    ):
        if dice < limit:
            return determiner
    return rng.pick(POSSESSIVES)


def _can_be_negated(subject: Subject, predicate: Predicate, time: Adjunct | None) -> bool:
    """Whether it is clear in both languages what "not" denies, and German has one place for it."""
    if time and time.bars_negation:
        return False
    if isinstance(subject, NounPhrase) and subject.determiner in (A, EVERY):
        return False
    if isinstance(predicate, Passive):
        return predicate.agent is None
    if isinstance(predicate, State):
        return True
    return _is_clear(predicate.target, (EVERY, NUMBER, SOME)) and _is_clear(
        predicate.recipient, (A, EVERY, NUMBER, SOME)
    )


def _is_clear(phrase: NounPhrase | Pronoun | None, unclear: tuple[Determiner, ...]) -> bool:
    return not isinstance(phrase, NounPhrase) or phrase.determiner not in unclear
