import pytest

from pipeline.builtin import number_words


@pytest.mark.parametrize(
    ("number", "en", "de"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (12, "twelve", "zwölf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (19, "nineteen", "neunzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (66, "sixty-six", "sechsundsechzig"),
        (77, "seventy-seven", "siebenundsiebzig"),
        (99, "ninety-nine", "neunundneunzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (111, "one hundred and eleven", "einhundertelf"),
        (121, "one hundred and twenty-one", "einhunderteinundzwanzig"),
        (342, "three hundred and forty-two", "dreihundertzweiundvierzig"),
        (999, "nine hundred and ninety-nine", "neunhundertneunundneunzig"),
        (1000, "one thousand", "eintausend"),
        (1001, "one thousand and one", "eintausendeins"),
        (1016, "one thousand and sixteen", "eintausendsechzehn"),
        (1100, "one thousand one hundred", "eintausendeinhundert"),
        (21_000, "twenty-one thousand", "einundzwanzigtausend"),
        (100_000, "one hundred thousand", "einhunderttausend"),
        (101_000, "one hundred and one thousand", "einhunderteintausend"),
        (101_001, "one hundred and one thousand and one", "einhunderteintausendeins"),
        (
            101_999,
            "one hundred and one thousand nine hundred and ninety-nine",
            "einhunderteintausendneunhundertneunundneunzig",
        ),
        (201_100, "two hundred and one thousand one hundred", "zweihunderteintausendeinhundert"),
        (
            999_999,
            "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
        ),
    ],
)
def test_numbers_are_spelt_as_they_are_said(number, en, de):
    assert (number_words.english(number), number_words.german(number)) == (en, de)


def test_every_number_has_a_word_of_its_own():
    numbers = [*range(2500), *range(99_900, 102_100), *range(0, 1_000_000, 997)]
    for spell in (number_words.english, number_words.german):
        assert len({spell(number) for number in numbers}) == len(set(numbers))


@pytest.mark.parametrize("number", [-1, 1_000_000])
def test_a_number_out_of_bounds_is_named(number):
    for spell in (number_words.english, number_words.german):
        with pytest.raises(ValueError, match=rf"must be in 0 … 999999, but is {number}\."):
            spell(number)
