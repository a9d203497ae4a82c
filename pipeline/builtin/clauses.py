"""A clause: who does what, when and where, and the orders in which both languages say it.

The German middle field is ordered pronouns, time, recipient and known object, nicht, place or
direction, new object: "Ich habe dem Mann gestern im Park ein Buch gegeben" varies more freely in
life, but one order keeps one translation for each sentence.
"""

from typing import NamedTuple

from pipeline.builtin.grammar import Tense
from pipeline.builtin.phrases import Adjunct, Key, Pronoun, Relative, Subject
from pipeline.builtin.predicates import Action, Predicate


class Clause(NamedTuple):
    """An abstract clause; a modal verb asks for the present."""

    subject: Subject
    predicate: Predicate
    tense: Tense = "present"
    negated: bool = False
    time: Adjunct | None = None
    place: Adjunct | None = None

    @property
    def keys(self) -> tuple[Key, ...]:
        """All pairs and numbers in it."""
        place = self.place.keys if self.place else ()
        time = self.time.keys if self.time else ()
        joint = self.predicate.joint_keys(self.subject)
        return (*self.subject.keys, *self.predicate.keys, *joint, *place, *time)


def english_statement(clause: Clause) -> str:
    """Subject, verbs, objects, place, time: "the dog does not see me in the garden today"."""
    verbs = clause.predicate.english(
        clause.subject.person, clause.tense, needs_auxiliary=clause.negated
    )
    auxiliary = f"{verbs.auxiliary} not" if clause.negated else verbs.auxiliary
    if auxiliary == "can not":
        auxiliary = "cannot"
    return _join(clause.subject.english(), auxiliary, verbs.rest, *_english_adjuncts(clause))


def english_question(clause: Clause) -> str:
    """Auxiliary, subject, rest: "does the dog see me in the garden today"."""
    verbs = clause.predicate.english(clause.subject.person, clause.tense, needs_auxiliary=True)
    return _join(verbs.auxiliary, clause.subject.english(), verbs.rest, *_english_adjuncts(clause))


def english_infinitive(clause: Clause) -> str:
    """With to: "not to see me in the garden"."""
    assert isinstance(clause.predicate, Action)
    negation = "not" if clause.negated else ""
    return _join(negation, "to", clause.predicate.english_infinitive(), *_english_adjuncts(clause))


def german_statement(clause: Clause) -> str:
    """Verb second after the subject: "der Hund sieht mich heute nicht im Garten"."""
    finite, end, _ = clause.predicate.german(clause.subject.person, clause.tense)
    return _join(clause.subject.german("nom"), finite, *_german_middle(clause), end)


def german_inverted(clause: Clause) -> str:
    """Verb before the subject: a question, or what follows a fronted part.

    An object pronoun comes before a subject that is none: "sieht mich der Hund". "Sie" waits, as
    it would be taken for the subject: "sieht der Hund sie".
    """
    finite, end, _ = clause.predicate.german(clause.subject.person, clause.tense)
    pronouns = clause.predicate.inside(negated=clause.negated).pronouns
    subject = clause.subject.german("nom")
    if isinstance(clause.subject, Pronoun) or pronouns == ("sie",):
        return _join(finite, subject, *_german_middle(clause), end)
    rest = _german_middle(clause)[len(pronouns) :]
    return _join(finite, *pronouns, subject, *rest, end)


def german_subordinate(clause: Clause) -> str:
    """Verb last: "der Hund mich heute nicht im Garten sieht"."""
    bracket = clause.predicate.german(clause.subject.person, clause.tense)
    return _join(clause.subject.german("nom"), *_german_middle(clause), bracket.closed)


def german_infinitive(clause: Clause) -> str:
    """No subject, zu before or inside the verb: "mich nicht einzuladen"."""
    assert isinstance(clause.predicate, Action)
    return _join(*_german_middle(clause), clause.predicate.german_infinitive())


def relative_clause(clause: Clause) -> tuple[str, str]:
    """English and German of a clause whose subject is a relative pronoun."""
    assert isinstance(clause.subject, Relative)
    return english_statement(clause), german_subordinate(clause)


def _english_adjuncts(clause: Clause) -> tuple[str, str]:
    place = clause.place.en if clause.place else ""
    time = clause.time.en if clause.time else ""
    return place, time


def _german_middle(clause: Clause) -> list[str]:
    """What stands between the verbs, in order; parts may be empty."""
    inside = clause.predicate.inside(negated=clause.negated)
    time = clause.time.de if clause.time else ""
    place = clause.predicate.direction or clause.place
    negation = "nicht" if clause.negated and not inside.is_negated_by_kein else ""
    where = place.de if place else ""
    return [*inside.pronouns, time, *inside.early, negation, where, *inside.late]


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
