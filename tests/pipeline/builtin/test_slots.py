import pytest

from pipeline.builtin import slots
from pipeline.builtin.rng import Rng


class Scripted(Rng):
    """Gives the numbers it is told."""

    def __init__(self, *numbers):
        super().__init__(0)
        self._numbers = iter(numbers)

    def bits(self):
        return next(self._numbers)


@pytest.mark.parametrize(
    ("hour", "step", "en", "de"),
    [
        (0, 0, "12:00 AM", "00:00 Uhr"),
        (0, 1, "12:05 AM", "00:05 Uhr"),
        (1, 11, "1:55 AM", "01:55 Uhr"),
        (11, 6, "11:30 AM", "11:30 Uhr"),
        (12, 0, "12:00 PM", "12:00 Uhr"),
        (13, 3, "1:15 PM", "13:15 Uhr"),
        (23, 11, "11:55 PM", "23:55 Uhr"),
    ],
)
def test_twelve_hours_become_twenty_four(hour, step, en, de):
    assert slots.clock_time(Scripted(hour, step)) == (en, de)


@pytest.mark.parametrize(
    ("tenths", "en", "de"),
    [(25, "2.5", "2,5"), (30, "3", "3"), (12_345, "1,234.5", "1.234,5"), (5, "0.5", "0,5")],
)
def test_point_and_comma_change_places(tenths, en, de):
    assert slots.decimal(tenths) == (en, de)


def test_digits_are_grouped():
    assert slots.whole_number(999) == ("999", "999")
    assert slots.whole_number(12_345) == ("12,345", "12.345")
    assert slots.whole_number(1_000_000) == ("1,000,000", "1.000.000")


def test_prices_have_the_sign_on_the_side_of_their_language():
    assert slots.money(Scripted(0, 0, 1249, 3)) == ("€1,250.50", "1.250,50 €")
    assert slots.money(Scripted(3, 0, 19, 0)) == ("$20", "20 $")


def test_days_have_their_true_weekday():
    seen = set()
    rng = Rng(3)
    for _ in range(20_000):
        seen.add(slots.day(rng, 2000, 2014))
    days = {day.en: day for day in seen}
    assert days["Monday, 12 May 2014"].de_nominative == "Montag, der 12. Mai 2014"
    assert days["Monday, 12 May 2014"].de_dative == "Montag, dem 12. Mai 2014"
    assert days["Tuesday, 29 February 2000"].de_dative == "Dienstag, dem 29. Februar 2000"
    assert {day.en.split(" ")[3] for day in seen} == {str(year) for year in range(2000, 2015)}


def test_counts_are_plural_and_never_end_in_one():
    rng = Rng(5)
    numbers = {slots.counted(rng) for _ in range(5000)}
    assert (min(numbers), max(numbers)) == (2, 99)
    assert [slots.without_final_one(number) for number in (1, 21, 101, 1001)] == [2, 21, 102, 1002]


@pytest.mark.parametrize("draw", [slots.present_time, slots.past_time, slots.future_time])
def test_spelt_numbers_in_times_have_keys(draw):
    rng = Rng(1)
    times = [draw(rng) for _ in range(500)]
    for time in times:
        is_counted = time.en.endswith(" ago") or (time.en.endswith("s") and time.en[:3] == "in ")
        assert bool(time.keys) == is_counted, time
    assert len({time.en for time in times}) > 50
