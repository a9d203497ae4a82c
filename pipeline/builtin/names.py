"""Small bilingual tables: days, months, countries, languages and other fixed words."""

from typing import NamedTuple

from pipeline.builtin.lexicon import Gender


class Word(NamedTuple):
    """A word or phrase that never bends."""

    en: str
    de: str


class Named(NamedTuple):
    """A noun that is used with "the" in the singular only."""

    en: str
    de: str
    gender: Gender


def _words(table: str) -> tuple[Word, ...]:
    pairs = (entry.split("=") for entry in table.replace("\n", " ").split(", "))
    return tuple(Word(en.strip(), de.strip()) for en, de in pairs)


WEEKDAYS = _words(
    "Monday=Montag, Tuesday=Dienstag, Wednesday=Mittwoch, Thursday=Donnerstag, Friday=Freitag, "
    "Saturday=Samstag, Sunday=Sonntag"
)
MONTHS = _words(
    "January=Januar, February=Februar, March=März, April=April, May=Mai, June=Juni, July=Juli, "
    "August=August, September=September, October=Oktober, November=November, December=Dezember"
)
# Only names that German uses without an article.
COUNTRIES = _words(
    "Albania=Albanien, Argentina=Argentinien, Australia=Australien, Austria=Österreich, "
    "Belgium=Belgien, Brazil=Brasilien, Bulgaria=Bulgarien, Canada=Kanada, Chile=Chile, "
    "China=China, Colombia=Kolumbien, Croatia=Kroatien, Denmark=Dänemark, Egypt=Ägypten, "
    "Estonia=Estland, Finland=Finnland, France=Frankreich, Germany=Deutschland, "
    "Greece=Griechenland, Hungary=Ungarn, Iceland=Island, India=Indien, Ireland=Irland, "
    "Italy=Italien, Japan=Japan, Kenya=Kenia, Latvia=Lettland, Lithuania=Litauen, "
    "Luxembourg=Luxemburg, Mexico=Mexiko, Morocco=Marokko, New Zealand=Neuseeland, "
    "Norway=Norwegen, Peru=Peru, Poland=Polen, Portugal=Portugal, Romania=Rumänien, "
    "Russia=Russland, Serbia=Serbien, South Africa=Südafrika, Spain=Spanien, Sweden=Schweden"
)
LANGUAGES = _words(
    "Albanian=Albanisch, Arabic=Arabisch, Bulgarian=Bulgarisch, Chinese=Chinesisch, "
    "Croatian=Kroatisch, Danish=Dänisch, English=Englisch, Estonian=Estnisch, Finnish=Finnisch, "
    "French=Französisch, German=Deutsch, Greek=Griechisch, Hungarian=Ungarisch, "
    "Icelandic=Isländisch, Irish=Irisch, Italian=Italienisch, Japanese=Japanisch, "
    "Latvian=Lettisch, Norwegian=Norwegisch, Polish=Polnisch, Portuguese=Portugiesisch, "
    "Romanian=Rumänisch, Russian=Russisch, Serbian=Serbisch, Spanish=Spanisch, "
    "Swedish=Schwedisch, Turkish=Türkisch"
)
EVENTS = (
    Named("meeting", "Besprechung", "f"),
    Named("concert", "Konzert", "n"),
    Named("film", "Film", "m"),
    Named("course", "Kurs", "m"),
    Named("party", "Feier", "f"),
    Named("lesson", "Unterricht", "m"),
    Named("game", "Spiel", "n"),
    Named("exhibition", "Ausstellung", "f"),
)
VEHICLES = (
    Named("train", "Zug", "m"),
    Named("bus", "Bus", "m"),
    Named("ship", "Schiff", "n"),
    Named("coach", "Reisebus", "m"),
    Named("ferry", "Fähre", "f"),
)
LONG_THINGS = (
    Named("road", "Straße", "f"),
    Named("river", "Fluss", "m"),
    Named("bridge", "Brücke", "f"),
    Named("tunnel", "Tunnel", "m"),
    Named("wall", "Mauer", "f"),
)
VESSELS = (
    Named("bucket", "Eimer", "m"),
    Named("bottle", "Flasche", "f"),
    Named("barrel", "Fass", "n"),
    Named("bowl", "Schüssel", "f"),
    Named("tank", "Tank", "m"),
)
DURATIONS = _words(
    "seconds=Sekunden, minutes=Minuten, hours=Stunden, days=Tage, weeks=Wochen, months=Monate, "
    "years=Jahre"
)
# The German column is the dative: "two days ago" is "vor zwei Tagen".
PERIODS = _words(
    "minutes=Minuten, hours=Stunden, days=Tagen, weeks=Wochen, months=Monaten, years=Jahren"
)
PRESENT_TIMES = _words("today=heute, in the morning=am Morgen, in the evening=am Abend")
HABITS = _words(
    "every day=jeden Tag, every week=jede Woche, every month=jeden Monat, every year=jedes Jahr"
)
PAST_TIMES = _words(
    "yesterday=gestern, last week=letzte Woche, last month=letzten Monat, last year=letztes Jahr, "
    "in the morning=am Morgen, in the evening=am Abend"
)
FUTURE_TIMES = _words(
    "tomorrow=morgen, soon=bald, next week=nächste Woche, next month=nächsten Monat, "
    "next year=nächstes Jahr, in the evening=am Abend"
)
PREPOSITIONS = _words("behind=hinter, in front of=vor, next to=neben")
