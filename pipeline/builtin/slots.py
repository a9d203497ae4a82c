"""Numbers, dates, times and money in both spellings; no locale, no strftime."""

import datetime
from typing import NamedTuple

from pipeline.builtin import names, number_words
from pipeline.builtin.names import Word
from pipeline.builtin.phrases import Adjunct, Key
from pipeline.builtin.rng import Rng


class Day(NamedTuple):
    """A day: "Monday, 12 May 2014"; German in the two cases it is used in."""

    en: str
    de_nominative: str  # Montag, der 12. Mai 2014
    de_dative: str  # Montag, dem 12. Mai 2014


def counted(rng: Rng) -> int:
    """A number for words before a plural noun, 2 … 99, small ones more often."""
    number = rng.between(2, 12) if rng.chance(35) else rng.between(13, 99)
    return without_final_one(number)


def without_final_one(number: int) -> int:
    """The number, or the next one after 1, 101, 201, …, where German usage wavers.

    ("einhunderteins Hunde" or "hundertundein Hund")
    """
    return number + 1 if number % 100 == 1 else number


def number_key(number: int) -> Key:
    """What holds a spelt number back from training."""
    return ("number", str(number), "")


def clock_time(rng: Rng) -> Word:
    """A time on five minutes: "3:15 PM" is "15:15 Uhr"."""
    hour, minute = rng.below(24), 5 * rng.below(12)
    half = "AM" if hour < 12 else "PM"
    return Word(f"{(hour - 1) % 12 + 1}:{minute:02d} {half}", f"{hour:02d}:{minute:02d} Uhr")


def whole_number(number: int) -> Word:
    """Digits in groups of three: "12,345" is "12.345"."""
    return Word(f"{number:,}", f"{number:,}".replace(",", "."))


def decimal(tenths: int) -> Word:
    """One place behind the point, or none for whole numbers: "2.5" is "2,5"."""
    whole, rest = divmod(tenths, 10)
    digits = whole_number(whole)
    return Word(f"{digits.en}.{rest}", f"{digits.de},{rest}") if rest else digits


def money(rng: Rng) -> Word:
    """A price: "€1,250.50" is "1.250,50 €"."""
    currency = rng.pick(("€", "€", "€", "$", "£"))
    whole = whole_number(rng.between(1, 2000) if rng.chance(70) else rng.between(2000, 99_999))
    cents = rng.pick((0, 0, 25, 50, 75, 90, 95, 99))
    if not cents:
        return Word(f"{currency}{whole.en}", f"{whole.de} {currency}")
    return Word(f"{currency}{whole.en}.{cents}", f"{whole.de},{cents} {currency}")


def day(rng: Rng, first_year: int, last_year: int) -> Day:
    """Any day of these years, with its true weekday."""
    first = datetime.date(first_year, 1, 1).toordinal()
    last = datetime.date(last_year, 12, 31).toordinal()
    date = datetime.date.fromordinal(rng.between(first, last))
    weekday, month = names.WEEKDAYS[date.weekday()], names.MONTHS[date.month - 1]
    de = f"{date.day}. {month.de} {date.year}"
    return Day(
        f"{weekday.en}, {date.day} {month.en} {date.year}",
        f"{weekday.de}, der {de}",
        f"{weekday.de}, dem {de}",
    )


def present_time(rng: Rng) -> Adjunct:
    """A time for the present and for modal verbs."""
    dice = rng.below(100)
    if dice < 45:
        return _any_time(rng)
    if dice < 65:
        clock = clock_time(rng)
        return Adjunct(f"at {clock.en}", f"um {clock.de}")
    if dice < 85:
        return Adjunct(*rng.pick(names.PRESENT_TIMES))
    return Adjunct(*rng.pick(names.HABITS), bars_negation=True)


def past_time(rng: Rng) -> Adjunct:
    """A time before now."""
    dice = rng.below(100)
    if dice < 30:
        return _any_time(rng)
    if dice < 45:
        return _year(rng.between(1950, 2024))
    if dice < 60:
        return _date(rng, 1950, 2024)
    if dice < 80:
        number, period = counted(rng), rng.pick(names.PERIODS)
        en = f"{number_words.english(number)} {period.en} ago"
        de = f"vor {number_words.german(number)} {period.de}"
        return Adjunct(en, de, (number_key(number),))
    return Adjunct(*rng.pick(names.PAST_TIMES))


def future_time(rng: Rng) -> Adjunct:
    """A time after now."""
    dice = rng.below(100)
    if dice < 30:
        return _any_time(rng)
    if dice < 40:
        return _year(rng.between(2027, 2060))
    if dice < 50:
        return _date(rng, 2027, 2060)
    if dice < 70:
        number, period = counted(rng), rng.pick(names.PERIODS)
        en = f"in {number_words.english(number)} {period.en}"
        de = f"in {number_words.german(number)} {period.de}"
        return Adjunct(en, de, (number_key(number),))
    return Adjunct(*rng.pick(names.FUTURE_TIMES))


def _any_time(rng: Rng) -> Adjunct:
    if rng.chance(60):
        weekday = rng.pick(names.WEEKDAYS)
        return Adjunct(f"on {weekday.en}", f"am {weekday.de}")
    month = rng.pick(names.MONTHS)
    return Adjunct(f"in {month.en}", f"im {month.de}")


def _year(year: int) -> Adjunct:
    return Adjunct(f"in {year}", f"im Jahr {year}")


def _date(rng: Rng, first_year: int, last_year: int) -> Adjunct:
    number, month = rng.between(1, 28), rng.pick(names.MONTHS)
    year = rng.between(first_year, last_year)
    return Adjunct(f"on {number} {month.en} {year}", f"am {number}. {month.de} {year}")
