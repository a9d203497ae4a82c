import pytest

from pipeline.builtin import sentences
from pipeline.builtin.rng import Rng

DRAWS = 60


def drawn(maker):
    rng = Rng(1, "test")
    return [maker(rng) for _ in range(DRAWS)]


@pytest.mark.parametrize("kind", sentences.KINDS)
def test_every_kind_makes_varied_sentences(kind):
    _, maker = sentences.KINDS[kind]
    pairs = drawn(maker)
    assert len({pair.en for pair in pairs}) > DRAWS * 0.8
    for en, de, _ in pairs:
        assert en[0].isupper() or en[0].isdigit()
        assert de[0].isupper()
        assert en[-1] == de[-1] == ("?" if "question" in kind and "indirect" not in kind else ".")
        assert "  " not in en + de
        assert not {",,", " ,", ", ,", ",."} & {de[i : i + 2] for i in range(len(de))}


@pytest.mark.parametrize("maker", sentences.LONG_KINDS)
def test_long_kinds_make_varied_sentences(maker):
    pairs = drawn(maker)
    assert len({pair.en for pair in pairs}) == DRAWS
    assert all(pair.de.count(",") >= 1 for pair in pairs)


@pytest.mark.parametrize(
    ("kind", "en", "de"),
    [
        ("condition", "if ", "wenn "),
        ("meanwhile", "while ", "während "),
        ("reported", " that ", ", dass "),
        ("purpose", " in order ", ", um "),
    ],
)
def test_conjunctions_match(kind, en, de):
    for pair in drawn(sentences.KINDS[kind][1]):
        assert en in pair.en.lower()
        assert de in pair.de.lower()


def test_a_fronted_part_is_followed_by_the_verb_in_german():
    for en, de, _ in drawn(sentences.fronted):
        front = {"Yesterday, ": "Gestern ", "Tomorrow, ": "Morgen ", "Every day, ": "Jeden Tag "}
        for part, german in front.items():
            if en.startswith(part):
                assert de.startswith(german)
                assert "," not in de


def test_a_country_and_its_clock_are_spelt_in_both_languages():
    for en, de, _ in drawn(sentences.KINDS["departure"][1]):
        assert en.endswith((" AM.", " PM."))
        assert de.endswith((" Uhr ab.", " Uhr an."))


def test_must_not_is_never_said():
    rng = Rng(2, "test")
    english = [sentences.draw_sentence(rng).en for _ in range(5000)]
    assert not [en for en in english if "must not" in en]
    assert [en for en in english if "not have to" in en]
    assert [en for en in english if "not allowed to" in en]
