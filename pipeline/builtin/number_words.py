"""English and German number words for 0 … 999,999."""

_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety
null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig
"""
_EN_SMALL, _EN_TENS, _DE_SMALL, _DE_TENS = (line.split() for line in _WORDS.strip().splitlines())

MAX_NUMBER = 999_999


def english(number: int) -> str:
    """British number words: 342 is "three hundred and forty-two".

    Raises:
        ValueError: if `number` is not in 0 … 999,999.
    """
    _check(number)
    thousands, rest = divmod(number, 1000)
    if not thousands:
        return _english_below_thousand(rest)
    head = _english_below_thousand(thousands) + " thousand"
    if not rest:
        return head
    joint = " and " if rest < 100 else " "
    return head + joint + _english_below_thousand(rest)


def german(number: int) -> str:
    """German number words as they are counted: 1 is "eins", 21 "einundzwanzig".

    A final one takes its -s ("einhunderteins"), but not in front of "tausend"
    ("einhunderteintausend").

    Raises:
        ValueError: if `number` is not in 0 … 999,999.
    """
    _check(number)
    thousands, rest = divmod(number, 1000)
    head = _german_below_thousand(thousands) + "tausend" if thousands else ""
    if not rest and head:
        return head
    ends_in_one = rest % 100 == 1
    return head + _german_below_thousand(rest) + ("s" if ends_in_one else "")


def _check(number: int) -> None:
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"a number to spell must be in 0 … {MAX_NUMBER}, but is {number}.")


def _english_below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _english_below_hundred(rest)
    head = _EN_SMALL[hundreds] + " hundred"
    return f"{head} and {_english_below_hundred(rest)}" if rest else head


def _english_below_hundred(number: int) -> str:
    if number < 20:
        return _EN_SMALL[number]
    tens, ones = divmod(number, 10)
    return _EN_TENS[tens - 2] + (f"-{_EN_SMALL[ones]}" if ones else "")


def _german_below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _german_below_hundred(rest)
    head = _DE_SMALL[hundreds] + "hundert"
    return head + _german_below_hundred(rest) if rest else head


def _german_below_hundred(number: int) -> str:
    if number < 20:
        return _DE_SMALL[number]
    tens, ones = divmod(number, 10)
    return (f"{_DE_SMALL[ones]}und" if ones else "") + _DE_TENS[tens - 2]
