"""What a clause says of its subject: that it does something, is done something to, or is somehow.

A predicate spells its English verbs with all that belongs to them, and its German verb bracket
apart from what stands inside it; `clauses` puts both in order.
"""

from typing import NamedTuple

from pipeline.builtin.grammar import (
    Case,
    Person,
    Tense,
    contract,
    english_be,
    english_do,
    english_verb,
    german_auxiliary,
    german_modal,
    german_past_auxiliary,
    german_present,
    zu_infinitive,
)
from pipeline.builtin.lexicon import Adjective
from pipeline.builtin.phrases import (
    Adjunct,
    Key,
    NounPhrase,
    Pronoun,
    Relative,
    Subject,
    WithClause,
)
from pipeline.builtin.verbs import ALLOWED, MUST, WANT, Modal, Verb


class EnglishVerbs(NamedTuple):
    """The auxiliary, which trades places with the subject in a question ("" if none), the rest."""

    auxiliary: str
    rest: str


class Bracket(NamedTuple):
    """The German finite verb and what closes the clause: prefix, participle, infinitive."""

    finite: str
    end: str
    is_prefix: bool = False  # in a subordinate clause a prefix joins its verb: "einlädt"

    @property
    def closed(self) -> str:
        """Both at the end of a subordinate clause."""
        return f"{self.end}{self.finite}" if self.is_prefix else f"{self.end} {self.finite}".strip()


class Inside(NamedTuple):
    """What stands inside the bracket: pronouns, phrases before and after "nicht" and the place."""

    pronouns: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    is_negated_by_kein: bool = False


class Action(NamedTuple):
    """The subject does something, perhaps with two objects, perhaps to somewhere."""

    verb: Verb
    modal: Modal | None = None
    recipient: NounPhrase | Pronoun | None = None  # in the dative: gives *the man* a hat
    target: NounPhrase | Pronoun | None = None
    direction: Adjunct | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """Those of its phrases, and verb with object."""
        keys: tuple[Key, ...] = ()
        for part in (self.recipient, self.target, self.direction):
            keys += part.keys if part else ()
        if isinstance(self.target, NounPhrase):
            keys = (*keys, ("object", self.verb.name, self.target.noun.en))
        return keys

    def joint_keys(self, subject: Subject) -> tuple[Key, ...]:  # noqa: ARG002 as in State, Passive
        """Nothing that an active verb joins with its subject is held back."""
        return ()

    def english(self, person: Person, tense: Tense, *, needs_auxiliary: bool) -> EnglishVerbs:
        """With do-support or a modal where a question or "not" needs one."""
        if self.modal:
            auxiliary, link = _english_modal(self.modal, person, needs_auxiliary=needs_auxiliary)
            return EnglishVerbs(auxiliary, f"{link}{self._english_tail(self.verb.en)}")
        if needs_auxiliary:
            return EnglishVerbs(english_do(person, tense), self._english_tail(self.verb.en))
        return EnglishVerbs("", self._english_tail(english_verb(self.verb, person, tense)))

    def english_infinitive(self) -> str:
        """After "to"."""
        return self._english_tail(self.verb.en)

    def german(self, person: Person, tense: Tense) -> Bracket:
        """The past is the perfect, with haben or sein."""
        verb = self.verb
        if self.modal:
            return Bracket(german_modal(self.modal, person), verb.prefix + verb.de)
        if tense == "past":
            auxiliary = german_auxiliary("sein" if "sein" in verb.tags else "haben", person)
            return Bracket(auxiliary, verb.de_participle)
        return Bracket(german_present(verb, person), verb.prefix, is_prefix=True)

    def german_infinitive(self) -> str:
        """With zu."""
        return zu_infinitive(self.verb.de, self.verb.prefix)

    def inside(self, *, negated: bool) -> Inside:
        """Pronouns first, then the recipient and a known object; a new object comes last."""
        pronouns: tuple[str, ...] = ()
        early: tuple[str, ...] = ()
        late: tuple[str, ...] = ()
        takes_kein = negated and self.can_take_kein
        for phrase, case in self._german_objects():
            if isinstance(phrase, Pronoun):
                pronouns = (*pronouns, phrase.german(case))
            elif phrase is self.recipient or phrase.determiner.is_definite:
                early = (*early, phrase.german(case))
            else:
                late = ((phrase.negated() if takes_kein else phrase).german(case),)
        return Inside(pronouns, early, late, takes_kein)

    @property
    def can_take_kein(self) -> bool:
        """Whether its negation is kein at a new object instead of nicht."""
        return isinstance(self.target, NounPhrase) and not self.target.determiner.is_definite

    def _german_objects(self) -> tuple[tuple[NounPhrase | Pronoun, Case], ...]:
        case: Case = "dat" if "dative" in self.verb.tags else "acc"
        recipient: tuple[tuple[NounPhrase | Pronoun, Case], ...] = ()
        if self.recipient:
            recipient = ((self.recipient, "dat"),)
        return (*recipient, (self.target, case)) if self.target else recipient

    def _english_tail(self, verb: str) -> str:
        """Verb, objects and particle: "picks up the man", but "picks me up"."""
        words = [verb]
        if isinstance(self.target, Pronoun):
            words += [self.target.en_object, self.verb.particle]
        else:
            words += [self.verb.particle, _english_object(self.recipient)]
            words += [_english_object(self.target)]
        words += [self.direction.en if self.direction else ""]
        return " ".join(word for word in words if word)


class Passive(NamedTuple):
    """Something is done to the subject, perhaps by someone."""

    verb: Verb
    agent: NounPhrase | None = None

    @property
    def direction(self) -> None:
        """A passive leads nowhere."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Those of the agent."""
        return self.agent.keys if self.agent else ()

    def joint_keys(self, subject: Subject) -> tuple[Key, ...]:
        """The subject is the object of the verb."""
        return tuple(("object", self.verb.name, noun) for noun in _noun_of(subject))

    def english(
        self,
        person: Person,
        tense: Tense,
        *,
        needs_auxiliary: bool,  # noqa: ARG002 always there
    ) -> EnglishVerbs:
        """Be and the participle."""
        agent = f"by {self.agent.english()}" if self.agent else ""
        words = (self.verb.en_participle, self.verb.particle, agent)
        return EnglishVerbs(english_be(person, tense), " ".join(word for word in words if word))

    def german(self, person: Person, tense: Tense) -> Bracket:
        """Werden and the participle."""
        forms = german_past_auxiliary if tense == "past" else german_auxiliary
        return Bracket(forms("werden", person), self.verb.de_participle)

    def inside(self, *, negated: bool) -> Inside:  # noqa: ARG002 nicht is for the clause to place
        """The agent: von and the dative."""
        if not self.agent:
            return Inside()
        return Inside(early=(contract(f"von {self.agent.german('dat')}"),))


class State(NamedTuple):
    """The subject is somehow, or more so than something else."""

    adjective: Adjective
    standard: NounPhrase | None = None

    @property
    def direction(self) -> None:
        """A state leads nowhere."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """Those of the phrase compared with."""
        return self.standard.keys if self.standard else ()

    def joint_keys(self, subject: Subject) -> tuple[Key, ...]:
        """Adjective and subject belong together."""
        return tuple(("adjective", self.adjective.en, noun) for noun in _noun_of(subject))

    def english(
        self,
        person: Person,
        tense: Tense,
        *,
        needs_auxiliary: bool,  # noqa: ARG002 always there
    ) -> EnglishVerbs:
        """Be and the adjective."""
        adjective = self.adjective.en
        if self.standard:
            adjective = f"{self.adjective.en_comparative} than {self.standard.english()}"
        return EnglishVerbs(english_be(person, tense), adjective)

    def german(self, person: Person, tense: Tense) -> Bracket:
        """Sein, in the simple past even where other verbs take the perfect, and the adjective."""
        forms = german_past_auxiliary if tense == "past" else german_auxiliary
        adjective = self.adjective.de
        if self.standard:
            adjective = f"{self.adjective.de_comparative} als {self.standard.german('nom')}"
        return Bracket(forms("sein", person), adjective)

    def inside(self, *, negated: bool) -> Inside:  # noqa: ARG002 nicht is for the clause to place
        """Nothing: the adjective closes the bracket."""
        return Inside()


Predicate = Action | Passive | State


def _english_modal(modal: Modal, person: Person, *, needs_auxiliary: bool) -> tuple[str, str]:
    """The auxiliary, and what links it to the verb.

    "Must not" forbids, but "muss nicht" frees: so the negation and the question of must are those
    of "have to". Forbidding is "is not allowed to".
    """
    if modal is ALLOWED:
        return english_be(person, "present"), "allowed to "
    if needs_auxiliary and modal in (WANT, MUST):
        return english_do(person, "present"), "want to " if modal is WANT else "have to "
    if modal is WANT:
        return "", "wants to " if person == "3s" else "want to "
    return modal.en, ""


def _english_object(phrase: NounPhrase | Pronoun | None) -> str:
    if isinstance(phrase, Pronoun):
        return phrase.en_object
    return phrase.english() if phrase else ""


def _noun_of(subject: Subject) -> tuple[str, ...]:
    """The English noun of a subject, none for a pronoun."""
    if isinstance(subject, NounPhrase):
        return (subject.noun.en,)
    if isinstance(subject, Relative):
        return (subject.antecedent.noun.en,)
    return (subject.phrase.noun.en,) if isinstance(subject, WithClause) else ()
