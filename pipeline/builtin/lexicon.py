"""Nouns and adjectives in both languages, with what German grammar needs to bend them.

Each English word has one German word here and the other way round: so an English sentence has one
German sentence. Written for this project. In the tables `_` stands for a space and `-` for "none".
"""

from functools import cache
from typing import Literal, NamedTuple, cast

Gender = Literal["m", "f", "n", "p"]  # masculine, feminine, neuter; plural, which has no gender
Kind = Literal["being", "thing", "food", "place"]


class Noun(NamedTuple):
    """A noun; a weak one ("der Junge, den Jungen") looks like its plural outside the nominative."""

    en: str
    en_plural: str
    de: str
    gender: Gender
    de_plural: str
    is_weak: bool
    kind: Kind


class Adjective(NamedTuple):
    """An adjective; `de_stem` takes the endings (teuer, but teur-e); no comparative is ""."""

    en: str
    en_comparative: str
    de: str
    de_stem: str
    de_comparative: str
    kinds: str  # first letters of the kinds of noun that it goes with


@cache
def nouns(kind: Kind) -> tuple[Noun, ...]:
    """All nouns of one kind, in the order of the table."""
    tables = {"being": _BEINGS, "thing": _THINGS, "food": _FOODS, "place": _PLACES}
    return tuple(_noun(line.split(), kind) for line in tables[kind].strip().splitlines())


@cache
def adjectives(kind: Kind) -> tuple[Adjective, ...]:
    """The adjectives that go with nouns of a kind, in the order of the table."""
    every = (_adjective(line.split()) for line in _ADJECTIVES.strip().splitlines())
    return tuple(adjective for adjective in every if kind[0] in adjective.kinds)


def _noun(fields: list[str], kind: Kind) -> Noun:
    en, en_plural, de, gender, de_plural = fields[:5]
    return Noun(en, en_plural, de, cast("Gender", gender), de_plural, fields[5:] == ["weak"], kind)


def _adjective(fields: list[str]) -> Adjective:
    en, en_comparative, de, de_stem, de_comparative, kinds = (
        "" if field == "-" else field.replace("_", " ") for field in fields
    )
    return Adjective(en, en_comparative, de, de_stem, de_comparative, kinds)


# A line: English singular and plural; German singular, gender and plural; whether it is weak
_BEINGS = """
dog dogs Hund m Hunde
cat cats Katze f Katzen
child children Kind n Kinder
woman women Frau f Frauen
man men Mann m Männer
teacher teachers Lehrer m Lehrer
doctor doctors Ärztin f Ärztinnen
girl girls Mädchen n Mädchen
boy boys Junge m Jungen weak
horse horses Pferd n Pferde
bird birds Vogel m Vögel
neighbour neighbours Nachbar m Nachbarn weak
student students Studentin f Studentinnen
baker bakers Bäcker m Bäcker
farmer farmers Bäuerin f Bäuerinnen
king kings König m Könige
queen queens Königin f Königinnen
prince princes Prinz m Prinzen weak
mouse mice Maus f Mäuse
rabbit rabbits Kaninchen n Kaninchen
hare hares Hase m Hasen weak
fox foxes Fuchs m Füchse
wolf wolves Wolf m Wölfe
bear bears Bär m Bären weak
lion lions Löwe m Löwen weak
monkey monkeys Affe m Affen weak
elephant elephants Elefant m Elefanten weak
cow cows Kuh f Kühe
pig pigs Schwein n Schweine
duck ducks Ente f Enten
owl owls Eule f Eulen
unicorn unicorns Einhorn n Einhörner
robot robots Roboter m Roboter
pirate pirates Pirat m Piraten weak
witch witches Hexe f Hexen
ghost ghosts Gespenst n Gespenster
monster monsters Monster n Monster
giant giants Riese m Riesen weak
hero heroes Held m Helden weak
grandmother grandmothers Großmutter f Großmütter
grandfather grandfathers Großvater m Großväter
brother brothers Bruder m Brüder
sister sisters Schwester f Schwestern
uncle uncles Onkel m Onkel
aunt aunts Tante f Tanten
guest guests Gast m Gäste
judge judges Richterin f Richterinnen
painter painters Maler m Maler
singer singers Sängerin f Sängerinnen
engineer engineers Ingenieur m Ingenieure
actress actresses Schauspielerin f Schauspielerinnen
thief thieves Dieb m Diebe
dragon dragons Drache m Drachen weak
goat goats Ziege f Ziegen
nurse nurses Krankenpfleger m Krankenpfleger
captain captains Kapitän m Kapitäne
"""
_THINGS = """
book books Buch n Bücher
lamp lamps Lampe f Lampen
table tables Tisch m Tische
chair chairs Stuhl m Stühle
armchair armchairs Sessel m Sessel
letter letters Brief m Briefe
picture pictures Bild n Bilder
key keys Schlüssel m Schlüssel
bottle bottles Flasche f Flaschen
flower flowers Blume f Blumen
hat hats Hut m Hüte
shoe shoes Schuh m Schuhe
shirt shirts Hemd n Hemden
dress dresses Kleid n Kleider
coat coats Mantel m Mäntel
uniform uniforms Uniform f Uniformen
bag bags Tasche f Taschen
car cars Auto n Autos
bicycle bicycles Fahrrad n Fahrräder
boat boats Boot n Boote
clock clocks Uhr f Uhren
ring rings Ring m Ringe
umbrella umbrellas Regenschirm m Regenschirme
knife knives Messer n Messer
fork forks Gabel f Gabeln
spoon spoons Löffel m Löffel
cup cups Becher m Becher
plate plates Teller m Teller
newspaper newspapers Zeitung f Zeitungen
map maps Landkarte f Landkarten
ball balls Ball m Bälle
guitar guitars Gitarre f Gitarren
violin violins Geige f Geigen
piano pianos Klavier n Klaviere
stone stones Stein m Steine
ticket tickets Fahrkarte f Fahrkarten
suitcase suitcases Koffer m Koffer
mirror mirrors Spiegel m Spiegel
carpet carpets Teppich m Teppiche
candle candles Kerze f Kerzen
box boxes Kiste f Kisten
basket baskets Korb m Körbe
blanket blankets Decke f Decken
pillow pillows Kissen n Kissen
glove gloves Handschuh m Handschuhe
ladder ladders Leiter f Leitern
drum drums Trommel f Trommeln
coin coins Münze f Münzen
engine engines Motor m Motoren
radio radios Radio n Radios
sofa sofas Sofa n Sofas
hammer hammers Hammer m Hämmer
"""
_FOODS = """
apple apples Apfel m Äpfel
pear pears Birne f Birnen
orange oranges Orange f Orangen
cake cakes Kuchen m Kuchen
egg eggs Ei n Eier
potato potatoes Kartoffel f Kartoffeln
tomato tomatoes Tomate f Tomaten
lemon lemons Zitrone f Zitronen
onion onions Zwiebel f Zwiebeln
sausage sausages Wurst f Würste
roll rolls Brötchen n Brötchen
soup soups Suppe f Suppen
biscuit biscuits Keks m Kekse
mushroom mushrooms Pilz m Pilze
"""
_PLACES = """
garden gardens Garten m Gärten
kitchen kitchens Küche f Küchen
house houses Haus n Häuser
forest forests Wald m Wälder
school schools Schule f Schulen
town towns Stadt f Städte
village villages Dorf n Dörfer
museum museums Museum n Museen
park parks Park m Parks
library libraries Bibliothek f Bibliotheken
hotel hotels Hotel n Hotels
castle castles Schloss n Schlösser
cave caves Höhle f Höhlen
restaurant restaurants Restaurant n Restaurants
hospital hospitals Krankenhaus n Krankenhäuser
theatre theatres Theater n Theater
church churches Kirche f Kirchen
office offices Büro n Büros
tower towers Turm m Türme
university universities Universität f Universitäten
"""
# A line: English and its comparative; German, its stem and its comparative; kinds of nouns
_ADJECTIVES = """
small smaller klein klein kleiner btfp
big bigger groß groß größer btfp
old older alt alt älter btp
young younger jung jung jünger b
new newer neu neu neuer tp
red - rot rot - tf
blue - blau blau - t
green - grün grün - tf
yellow - gelb gelb - tf
white - weiß weiß - tp
black - schwarz schwarz - t
beautiful more_beautiful schön schön schöner btp
ugly uglier hässlich hässlich hässlicher btp
clever cleverer klug klug klüger b
honest more_honest ehrlich ehrlich ehrlicher b
tired more_tired müde müd müder b
happy happier glücklich glücklich glücklicher b
sad sadder traurig traurig trauriger b
angry angrier wütend wütend wütender b
evil more_evil böse bös böser b
rich richer reich reich reicher b
poor poorer arm arm ärmer b
strong stronger stark stark stärker b
strange stranger seltsam seltsam seltsamer btp
friendly friendlier freundlich freundlich freundlicher b
famous more_famous berühmt berühmt berühmter btp
brave braver mutig mutig mutiger b
lazy lazier faul faul fauler b
curious more_curious neugierig neugierig neugieriger b
hungry hungrier hungrig hungrig hungriger b
quiet quieter leise leis leiser b
loud louder laut laut lauter b
heavy heavier schwer schwer schwerer t
light lighter leicht leicht leichter t
expensive more_expensive teuer teur teurer tf
cheap cheaper billig billig billiger tf
useful more_useful nützlich nützlich nützlicher t
broken - kaputt kaputt - t
clean cleaner sauber sauber sauberer tp
dirty dirtier schmutzig schmutzig schmutziger btp
dark darker dunkel dunkl dunkler tp
round - rund rund - t
warm warmer warm warm wärmer tfp
cold colder kalt kalt kälter tfp
wet wetter nass nass nasser bt
dry drier trocken trocken trockener tf
fresh fresher frisch frisch frischer f
sweet sweeter süß süß süßer f
sour more_sour sauer saur saurer f
"""
