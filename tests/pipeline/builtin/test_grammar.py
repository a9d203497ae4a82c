import pytest

from pipeline.builtin import grammar, lexicon
from pipeline.builtin.grammar import EVERY, NO, NUMBER, POSSESSIVES, SOME, THE, THIS, A
from pipeline.builtin.lexicon import Adjective, Noun
from pipeline.builtin.verbs import ALLOWED, MUST, SHOULD, WILL, verbs

CASES = ("nom", "acc", "dat")
OUR = POSSESSIVES[4]


def adjective(de: str) -> Adjective:
    kinds = ("being", "thing", "food", "place")
    return next(word for kind in kinds for word in lexicon.adjectives(kind) if word.de == de)


def being(en: str) -> Noun:
    return next(noun for noun in lexicon.nouns("being") if noun.en == en)


def verb(en: str, verb_class: str = "transitive"):
    return next(word for word in verbs(verb_class) if word.name == en)


@pytest.mark.parametrize(
    ("determiner", "gender", "forms"),
    [
        (THE, "m", "der den dem"),
        (THE, "f", "die die der"),
        (THE, "n", "das das dem"),
        (THE, "p", "die die den"),
        (THIS, "m", "dieser diesen diesem"),
        (THIS, "n", "dieses dieses diesem"),
        (EVERY, "f", "jede jede jeder"),
        (A, "m", "ein einen einem"),
        (A, "f", "eine eine einer"),
        (A, "n", "ein ein einem"),
        (NO, "m", "kein keinen keinem"),
        (OUR, "m", "unser unseren unserem"),
        (OUR, "p", "unsere unsere unseren"),
        (SOME, "p", "einige einige einigen"),
    ],
)
def test_determiners_show_case_and_gender(determiner, gender, forms):
    bent = [grammar.german_determiner(determiner, case, gender) for case in CASES]
    assert bent == forms.split()


def test_a_number_has_no_ending():
    assert grammar.german_determiner(NUMBER, "dat", "p") == ""


@pytest.mark.parametrize(
    ("family", "gender", "forms"),
    [
        ("der", "m", "alte alten alten"),
        ("der", "f", "alte alte alten"),
        ("der", "n", "alte alte alten"),
        ("der", "p", "alten alten alten"),
        ("ein", "m", "alter alten alten"),
        ("ein", "f", "alte alte alten"),
        ("ein", "n", "altes altes alten"),
        ("ein", "p", "alten alten alten"),
        ("bare", "p", "alte alte alten"),
    ],
)
def test_adjectives_end_by_what_stands_before_them(family, gender, forms):
    bent = [grammar.german_adjective(adjective("alt"), family, case, gender) for case in CASES]
    assert bent == forms.split()


@pytest.mark.parametrize(
    ("de", "form"),
    [
        ("teuer", "teurer"),
        ("dunkel", "dunkler"),
        ("sauer", "saurer"),
        ("sauber", "sauberer"),
        ("trocken", "trockener"),
        ("müde", "müder"),
        ("leise", "leiser"),
        ("böse", "böser"),
    ],
)
def test_adjective_stems_drop_the_right_e(de, form):
    assert grammar.german_adjective(adjective(de), "ein", "nom", "m") == form


@pytest.mark.parametrize(
    ("en", "singular", "plural"),
    [
        ("dog", "Hund Hund Hund", "Hunde Hunde Hunden"),
        ("child", "Kind Kind Kind", "Kinder Kinder Kindern"),
        ("woman", "Frau Frau Frau", "Frauen Frauen Frauen"),
        ("girl", "Mädchen Mädchen Mädchen", "Mädchen Mädchen Mädchen"),
        ("uncle", "Onkel Onkel Onkel", "Onkel Onkel Onkeln"),
        ("boy", "Junge Jungen Jungen", "Jungen Jungen Jungen"),
        ("neighbour", "Nachbar Nachbarn Nachbarn", "Nachbarn Nachbarn Nachbarn"),
        ("bear", "Bär Bären Bären", "Bären Bären Bären"),
        ("hero", "Held Helden Helden", "Helden Helden Helden"),
    ],
)
def test_nouns_bend_by_case(en, singular, plural):
    noun = being(en)
    assert [grammar.german_noun(noun, c, is_plural=False) for c in CASES] == singular.split()
    assert [grammar.german_noun(noun, c, is_plural=True) for c in CASES] == plural.split()


def test_plurals_in_s_take_no_n_in_the_dative():
    car = next(noun for noun in lexicon.nouns("thing") if noun.en == "car")
    assert grammar.german_noun(car, "dat", is_plural=True) == "Autos"


@pytest.mark.parametrize(
    ("en", "verb_class", "forms"),
    [
        ("see", "transitive", "sehe siehst sieht sehen"),
        ("eat", "transitive", "esse isst isst essen"),
        ("draw", "transitive", "zeichne zeichnest zeichnet zeichnen"),
        ("collect", "transitive", "sammle sammelst sammelt sammeln"),
        ("invite", "transitive", "lade lädst lädt laden"),
        ("wait", "intransitive", "warte wartest wartet warten"),
        ("smile", "intransitive", "lächle lächelst lächelt lächeln"),
        ("whisper", "intransitive", "flüstere flüsterst flüstert flüstern"),
        ("hike", "intransitive", "wandere wanderst wandert wandern"),
        ("dance", "intransitive", "tanze tanzt tanzt tanzen"),
        ("know", "saying", "weiß weißt weiß wissen"),
        ("travel", "motion", "reise reist reist reisen"),
    ],
)
def test_verbs_agree_with_their_subject(en, verb_class, forms):
    word = verb(en, verb_class)
    assert [grammar.german_present(word, p) for p in ("1s", "2s", "3s", "pl")] == forms.split()


@pytest.mark.parametrize(
    ("modal", "forms"),
    [
        (MUST, "muss musst muss müssen"),
        (SHOULD, "sollte solltest sollte sollten"),
        (ALLOWED, "darf darfst darf dürfen"),
        (WILL, "werde wirst wird werden"),
    ],
)
def test_modal_verbs_agree_with_their_subject(modal, forms):
    assert [grammar.german_modal(modal, p) for p in ("1s", "2s", "3s", "pl")] == forms.split()


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("dog", "a dog"),
        ("umbrella", "an umbrella"),
        ("ugly dog", "an ugly dog"),
        ("uncle", "an uncle"),
        ("unit", "a unit"),
        ("unicorn", "a unicorn"),
        ("useful hat", "a useful hat"),
        ("hour", "an hour"),
        ("honest man", "an honest man"),
        ("house", "a house"),
        ("egg", "an egg"),
        ("onion", "an onion"),
    ],
)
def test_a_or_an_follows_the_sound(phrase, expected):
    assert grammar.with_article(phrase) == expected


@pytest.mark.parametrize(
    ("apart", "together"),
    [
        ("in dem Garten", "im Garten"),
        ("in das Haus", "ins Haus"),
        ("in den Wald", "in den Wald"),
        ("in der Stadt", "in der Stadt"),
        ("in diesem Park", "in diesem Park"),
        ("von dem Hund", "vom Hund"),
        ("neben dem Haus", "neben dem Haus"),
    ],
)
def test_prepositions_melt_with_der_alone(apart, together):
    assert grammar.contract(apart) == together


def test_zu_goes_behind_a_separable_prefix():
    assert grammar.zu_infinitive("sehen") == "zu sehen"
    assert grammar.zu_infinitive("laden", "ein") == "einzuladen"


def test_english_verbs_agree_with_their_subject():
    word = verb("steal")
    assert [grammar.english_verb(word, p, "present") for p in ("1s", "3s", "pl")] == [
        *("steal", "steals", "steal")
    ]
    assert grammar.english_verb(word, "3s", "past") == "stole"
    assert [grammar.english_be(p, "present") for p in ("1s", "2s", "3s", "pl")] == [
        *("am", "are", "is", "are")
    ]
    assert [grammar.english_be(p, "past") for p in ("1s", "2s", "3s", "pl")] == [
        *("was", "were", "was", "were")
    ]
    assert [grammar.english_do(p, "present") for p in ("1s", "3s")] == ["do", "does"]
