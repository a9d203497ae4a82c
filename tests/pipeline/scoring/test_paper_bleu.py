import pytest

from pipeline.scoring.paper_bleu import Tokenised, split_compounds


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("- a - b -c d-", "- a - b -c d-"),
        ("3-4", "3 ##AT##-##AT## 4"),
    ],
)
def test_a_hyphen_between_two_characters_is_a_word(words, split):
    assert split_compounds(words) == split


def test_german_is_tokenised_as_by_moses():
    tokenised = Tokenised("de")
    text = 'Er sagte: "Die EU-Kommission zahlt z.B. 3,5 Mio. Euro."'
    assert tokenised(text) == (
        "Er sagte : &quot; Die EU ##AT##-##AT## Kommission zahlt z.B. 3,5 Mio. Euro . &quot;"
    )


def test_other_languages_keep_their_compounds():
    assert Tokenised("fr")("aujourd'hui peut-être") == "aujourd&apos; hui peut-être"
    assert not Tokenised("fr").splits_compounds
    assert Tokenised("de_AT").splits_compounds
