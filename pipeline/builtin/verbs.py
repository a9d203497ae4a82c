"""Verbs in both languages, sorted by what they take.

No English verb here looks the same in the present and the past (put, cut, read): such a sentence
would have two translations.
"""

from functools import cache
from typing import Literal, NamedTuple

VerbClass = Literal[
    "transitive", "intransitive", "motion", "giving", "saying", "asking", "intending"
]


class Verb(NamedTuple):
    """A verb; German finite forms and the infinitive are without the separable prefix.

    The tags say which kinds of object it takes (being, thing, food), whether that object is in the
    dative, whether it has a passive, forms its perfect with "sein", or leads into a place ("into")
    or to a country ("to").
    """

    en: str
    en_third: str
    en_past: str
    en_participle: str
    particle: str  # English: pick *up*, which follows a pronoun ("picks me up")
    de: str
    de_second: str
    de_third: str
    de_participle: str
    prefix: str  # German: *ein*laden
    tags: frozenset[str]

    @property
    def name(self) -> str:
        """The English verb with its particle: "bring along" is not "bring"."""
        return f"{self.en} {self.particle}".strip()


class Modal(NamedTuple):
    """A modal verb, or werden for the future."""

    en: str
    de_first: str
    de_second: str
    de_third: str
    de_plural: str


WANT = Modal("want", "will", "willst", "will", "wollen")
MUST = Modal("must", "muss", "musst", "muss", "müssen")
CAN = Modal("can", "kann", "kannst", "kann", "können")
SHOULD = Modal("should", "sollte", "solltest", "sollte", "sollten")
ALLOWED = Modal("allowed", "darf", "darfst", "darf", "dürfen")
WILL = Modal("will", "werde", "wirst", "wird", "werden")
MODALS = (WANT, MUST, CAN, SHOULD, ALLOWED, WILL)


@cache
def verbs(verb_class: VerbClass) -> tuple[Verb, ...]:
    """All verbs of a class, in the order of the table."""
    return tuple(_verb(line) for line in _TABLES[verb_class].strip().splitlines())


@cache
def passive_verbs() -> tuple[Verb, ...]:
    """The transitive verbs that are said in the passive."""
    return tuple(verb for verb in verbs("transitive") if "passive" in verb.tags)


def _verb(line: str) -> Verb:
    english, german, tags = (part.split() for part in line.split("|"))
    en, _, particle = english[0].partition("/")
    prefix, _, infinitive = german[0].rpartition("/")
    base, third, past, participle = (word.replace("_", " ") for word in [en, *english[1:]])
    return Verb(
        *(base, third, past, participle, particle, infinitive),
        *(german[1], german[2], german[3], prefix, frozenset(tags)),
    )


# English base/particle, third person, past, participle | German prefix/infinitive, 2nd and 3rd
# person, participle | tags
_TABLES: dict[VerbClass, str] = {
    "transitive": """
see sees saw seen | sehen siehst sieht gesehen | being thing food passive
buy buys bought bought | kaufen kaufst kauft gekauft | thing food passive
sell sells sold sold | verkaufen verkaufst verkauft verkauft | thing food passive
find finds found found | finden findest findet gefunden | being thing food passive
carry carries carried carried | tragen trägst trägt getragen | being thing passive
paint paints painted painted | malen malst malt gemalt | being thing food passive
lose loses lost lost | verlieren verlierst verliert verloren | thing passive
love loves loved loved | lieben liebst liebt geliebt | being thing food passive
need needs needed needed | brauchen brauchst braucht gebraucht | being thing food passive
draw draws drew drawn | zeichnen zeichnest zeichnet gezeichnet | being thing food passive
hide hides hid hidden | verstecken versteckst versteckt versteckt | being thing food passive
steal steals stole stolen | stehlen stiehlst stiehlt gestohlen | thing food passive
clean cleans cleaned cleaned | putzen putzt putzt geputzt | thing passive
wash washes washed washed | waschen wäschst wäscht gewaschen | being thing food passive
repair repairs repaired repaired | reparieren reparierst repariert repariert | thing passive
collect collects collected collected | sammeln sammelst sammelt gesammelt | thing passive
describe describes described described | beschreiben beschreibst beschreibt beschrieben | being thing food passive
touch touches touched touched | berühren berührst berührt berührt | being thing food passive
hate hates hated hated | hassen hasst hasst gehasst | being thing food
look_for looks_for looked_for looked_for | suchen suchst sucht gesucht | being thing food
forget forgets forgot forgotten | vergessen vergisst vergisst vergessen | being thing food passive
eat eats ate eaten | essen isst isst gegessen | food passive
cook cooks cooked cooked | kochen kochst kocht gekocht | food passive
taste tastes tasted tasted | probieren probierst probiert probiert | food passive
invite invites invited invited | ein/laden lädst lädt eingeladen | being passive
pick/up picks picked picked | ab/holen holst holt abgeholt | being thing passive
throw/away throws threw thrown | weg/werfen wirfst wirft weggeworfen | thing food passive
take/along takes took taken | mit/nehmen nimmst nimmt mitgenommen | being thing food
bring/along brings brought brought | mit/bringen bringst bringt mitgebracht | being thing food
borrow borrows borrowed borrowed | aus/leihen leihst leiht ausgeliehen | thing passive
pack packs packed packed | ein/packen packst packt eingepackt | thing food passive
look_at looks_at looked_at looked_at | an/sehen siehst sieht angesehen | being thing food
call calls called called | an/rufen rufst ruft angerufen | being passive
watch watches watched watched | beobachten beobachtest beobachtet beobachtet | being passive
know knows knew known | kennen kennst kennt gekannt | being
hear hears heard heard | hören hörst hört gehört | being passive
greet greets greeted greeted | grüßen grüßt grüßt gegrüßt | being passive
wake wakes woke woken | wecken weckst weckt geweckt | being passive
meet meets met met | treffen triffst trifft getroffen | being
visit visits visited visited | besuchen besuchst besucht besucht | being passive
help helps helped helped | helfen hilfst hilft geholfen | being dative
thank thanks thanked thanked | danken dankst dankt gedankt | being dative
trust trusts trusted trusted | vertrauen vertraust vertraut vertraut | being dative
follow follows followed followed | folgen folgst folgt gefolgt | being dative sein
answer answers answered answered | antworten antwortest antwortet geantwortet | being dative
""",
    "intransitive": """
sleep sleeps slept slept | schlafen schläfst schläft geschlafen |
dance dances danced danced | tanzen tanzt tanzt getanzt |
sing sings sang sung | singen singst singt gesungen |
work works worked worked | arbeiten arbeitest arbeitet gearbeitet |
wait waits waited waited | warten wartest wartet gewartet |
laugh laughs laughed laughed | lachen lachst lacht gelacht |
smile smiles smiled smiled | lächeln lächelst lächelt gelächelt |
cry cries cried cried | weinen weinst weint geweint |
play plays played played | spielen spielst spielt gespielt |
whisper whispers whispered whispered | flüstern flüsterst flüstert geflüstert |
stay stays stayed stayed | bleiben bleibst bleibt geblieben | sein
hike hikes hiked hiked | wandern wanderst wandert gewandert | sein
wake/up wakes woke woken | auf/wachen wachst wacht aufgewacht | sein
fall/asleep falls fell fallen | ein/schlafen schläfst schläft eingeschlafen | sein
get/up gets got got | auf/stehen stehst steht aufgestanden | sein
arrive arrives arrived arrived | an/kommen kommst kommt angekommen | sein
""",
    "motion": """
go goes went gone | gehen gehst geht gegangen | sein into to
run runs ran run | laufen läufst läuft gelaufen | sein into
come comes came come | kommen kommst kommt gekommen | sein into to
jump jumps jumped jumped | springen springst springt gesprungen | sein into
drive drives drove driven | fahren fährst fährt gefahren | sein to
fly flies flew flown | fliegen fliegst fliegt geflogen | sein to into
travel travels travelled travelled | reisen reist reist gereist | sein to
return returns returned returned | zurück/kehren kehrst kehrt zurückgekehrt | sein to
""",
    "giving": """
give gives gave given | geben gibst gibt gegeben |
show shows showed shown | zeigen zeigst zeigt gezeigt |
send sends sent sent | schicken schickst schickt geschickt |
bring brings brought brought | bringen bringst bringt gebracht |
lend lends lent lent | leihen leihst leiht geliehen |
owe owes owed owed | schulden schuldest schuldet geschuldet |
hand hands handed handed | reichen reichst reicht gereicht |
offer offers offered offered | an/bieten bietest bietet angeboten |
""",
    "saying": """
say says said said | sagen sagst sagt gesagt |
think thinks thought thought | glauben glaubst glaubt geglaubt |
know knows knew known | wissen weißt weiß gewusst |
hope hopes hoped hoped | hoffen hoffst hofft gehofft |
dream dreams dreamed dreamed | träumen träumst träumt geträumt |
""",
    "asking": """
ask asks asked asked | fragen fragst fragt gefragt |
""",
    "intending": """
try tries tried tried | versuchen versuchst versucht versucht |
promise promises promised promised | versprechen versprichst verspricht versprochen |
plan plans planned planned | planen planst plant geplant |
decide decides decided decided | beschließen beschließt beschließt beschlossen |
forget forgets forgot forgotten | vergessen vergisst vergisst vergessen |
""",
}
