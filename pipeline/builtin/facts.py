"""Sentences about times, prices, measures, countries and counts."""

from collections.abc import Callable

from pipeline.builtin import draw, lexicon, names, number_words, slots
from pipeline.builtin.grammar import NUMBER, THE, german_determiner
from pipeline.builtin.lexicon import Kind
from pipeline.builtin.names import Named
from pipeline.builtin.phrases import NounPhrase, inside
from pipeline.builtin.rng import Rng
from pipeline.builtin.sentence import Sentence, sentence

_GOODS: tuple[Kind, ...] = ("thing", "thing", "food")
_COUNTABLES: tuple[Kind, ...] = ("being", "thing", "food")


def appointment(rng: Rng) -> Sentence:
    """When an event begins or ends."""
    event, day = rng.pick(names.EVENTS), slots.day(rng, 1990, 2040)
    verb = rng.pick((("begins", "beginnt"), ("ends", "endet")))
    en = f"the {event.en} {verb[0]} on {day.en}"
    de = f"{_the(event)} {verb[1]} am {day.de_dative}"
    if rng.chance(60):
        clock = slots.clock_time(rng)
        en, de = f"{en}, at {clock.en}", f"{de}, um {clock.de}"
    return sentence(en, de)


def today(rng: Rng) -> Sentence:
    """What day it is."""
    day = slots.day(rng, 1990, 2040)
    return sentence(f"today is {day.en}", f"heute ist {day.de_nominative}")


def price(rng: Rng) -> Sentence:
    """What a thing or a food costs."""
    phrase = draw.noun_phrase(rng, rng.pick(_GOODS))
    amount = slots.money(rng)
    verb = ("cost", "kosten") if phrase.is_plural else ("costs", "kostet")
    return sentence(
        f"{phrase.english()} {verb[0]} {amount.en}",
        f"{phrase.german('nom')} {verb[1]} {amount.de}",
        phrase.keys,
    )


def home(rng: Rng) -> Sentence:
    """Where a being lives and what it speaks."""
    phrase = draw.noun_phrase(rng, "being")
    country, language = rng.pick(names.COUNTRIES), rng.pick(names.LANGUAGES)
    en, de = ("lives", "speaks"), ("wohnt", "spricht")
    if phrase.is_plural:
        en, de = ("live", "speak"), ("wohnen", "sprechen")
    return sentence(
        f"{phrase.english()} {en[0]} in {country.en} and {en[1]} {language.en}",
        f"{phrase.german('nom')} {de[0]} in {country.de} und {de[1]} {language.de}",
        phrase.keys,
    )


def language_share(rng: Rng) -> Sentence:
    """How many people of a country speak a language."""
    country, language = rng.pick(names.COUNTRIES), rng.pick(names.LANGUAGES)
    share = slots.decimal(rng.between(20, 990))
    return sentence(
        f"in {country.en}, {share.en} percent of the people speak {language.en}",
        f"in {country.de} sprechen {share.de} Prozent der Menschen {language.de}",
    )


def departure(rng: Rng) -> Sentence:
    """When a vehicle leaves or arrives."""
    vehicle, country = rng.pick(names.VEHICLES), rng.pick(names.COUNTRIES)
    clock = slots.clock_time(rng)
    if rng.chance(50):
        return sentence(
            f"the {vehicle.en} to {country.en} leaves at {clock.en}",
            f"{_the(vehicle)} nach {country.de} fährt um {clock.de} ab",
        )
    return sentence(
        f"the {vehicle.en} from {country.en} arrives at {clock.en}",
        f"{_the(vehicle)} aus {country.de} kommt um {clock.de} an",
    )


def measure(rng: Rng) -> Sentence:
    """How long, heavy, roomy or far away something is."""
    return rng.pick((_length, _weight, _volume, _duration, _distance, _temperature))(rng)


def age(rng: Rng) -> Sentence:
    """How old a being is."""
    phrase = draw.noun_phrase(rng, "being", adjective_percent=25)
    number = slots.counted(rng)
    verb = ("are", "sind") if phrase.is_plural else ("is", "ist")
    return sentence(
        f"{phrase.english()} {verb[0]} {number_words.english(number)} years old",
        f"{phrase.german('nom')} {verb[1]} {number_words.german(number)} Jahre alt",
        (*phrase.keys, slots.number_key(number)),
    )


def existence(rng: Rng) -> Sentence:
    """How many there are somewhere, in words."""
    number = rng.between(2, 999) if rng.chance(90) else rng.between(1000, 999_999)
    kind = rng.pick(_COUNTABLES)
    phrase = draw.noun_phrase(rng, kind, adjective_percent=30)._replace(
        determiner=NUMBER, is_plural=True, number=slots.without_final_one(number)
    )
    place = inside(NounPhrase(rng.pick(lexicon.nouns("place")), THE))
    return sentence(
        f"there are {phrase.english()} {place.en}",
        f"{place.de} gibt es {phrase.german('acc')}",
        phrase.keys,
    )


def population(rng: Rng) -> Sentence:
    """How many people live somewhere, in digits."""
    place = inside(NounPhrase(rng.pick(lexicon.nouns("place")), THE))
    number = slots.whole_number(rng.between(13, 9999))
    return sentence(
        f"{number.en} people live {place.en}", f"{place.de} wohnen {number.de} Menschen"
    )


FACTS: dict[str, tuple[int, Callable[[Rng], Sentence]]] = {
    "appointment": (3, appointment),
    "today": (1, today),
    "price": (4, price),
    "home": (4, home),
    "language share": (1, language_share),
    "departure": (2, departure),
    "measure": (4, measure),
    "age": (3, age),
    "existence": (5, existence),
    "population": (1, population),
}


def _length(rng: Rng) -> Sentence:
    if rng.chance(50):
        thing = rng.pick(names.LONG_THINGS)
        value, unit = slots.decimal(rng.between(11, 9000)), ("kilometres", "Kilometer")
    else:
        thing = _named_thing(rng)
        value = slots.decimal(rng.between(11, 99))
        unit = rng.pick((("metres", "Meter"), ("centimetres", "Zentimeter")))
    return sentence(
        f"the {thing.en} is {value.en} {unit[0]} long",
        f"{_the(thing)} ist {value.de} {unit[1]} lang",
    )


def _weight(rng: Rng) -> Sentence:
    thing, value = _named_thing(rng), slots.decimal(rng.between(11, 990))
    unit = rng.pick((("kilograms", "Kilogramm"), ("grams", "Gramm")))
    return sentence(
        f"the {thing.en} weighs {value.en} {unit[0]}", f"{_the(thing)} wiegt {value.de} {unit[1]}"
    )


def _volume(rng: Rng) -> Sentence:
    vessel, value = rng.pick(names.VESSELS), slots.decimal(rng.between(11, 2000))
    return sentence(
        f"the {vessel.en} holds {value.en} litres", f"{_the(vessel)} fasst {value.de} Liter"
    )


def _duration(rng: Rng) -> Sentence:
    event, unit = rng.pick(names.EVENTS), rng.pick(names.DURATIONS)
    number = rng.between(2, 120)
    return sentence(
        f"the {event.en} lasts {number} {unit.en}", f"{_the(event)} dauert {number} {unit.de}"
    )


def _distance(rng: Rng) -> Sentence:
    place, value = rng.pick(lexicon.nouns("place")), slots.decimal(rng.between(11, 9990))
    unit = rng.pick((("kilometres", "Kilometer"), ("metres", "Meter")))
    named = Named(place.en, place.de, place.gender)
    return sentence(
        f"the {named.en} is {value.en} {unit[0]} away",
        f"{_the(named)} ist {value.de} {unit[1]} entfernt",
    )


def _temperature(rng: Rng) -> Sentence:
    country, value = rng.pick(names.COUNTRIES), slots.decimal(rng.between(20, 400))
    return sentence(
        f"it is {value.en} degrees in {country.en}", f"in {country.de} sind es {value.de} Grad"
    )


def _named_thing(rng: Rng) -> Named:
    noun = rng.pick(lexicon.nouns("thing"))
    return Named(noun.en, noun.de, noun.gender)


def _the(named: Named) -> str:
    return f"{german_determiner(THE, 'nom', named.gender)} {named.de}"
