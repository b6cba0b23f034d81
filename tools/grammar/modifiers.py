"""Adjectives, adverbs, prepositions and conjunctions of the built-in language, written by hand.

An adjective line: ``English[/comparative]; German[/attributive stem][ comparative]; kinds of noun
it goes with``. Several lines with one English adjective and different German ones are told apart
only by their noun.
"""

ADJECTIVES = """
good/better; gut besser; *
old; alt älter; *
new; neu; *
big/bigger; groß größer; *
small; klein; *
young; jung jünger; being
beautiful; schön; *
right; richtig; idea,text
right; recht; body,furniture,building
hard; hart härter; food,thing,furniture
hard; schwierig; idea,event,text
light; leicht; thing,vehicle,clothing
light; hell; building,device
tall; groß größer; person
tall; hoch/hoh höher; building,plant,place
free; frei; being,place
free; kostenlos; event,text,food,drink
short; kurz kürzer; event,text,time,clothing
short; klein; person
strange; fremd; place,city
strange; seltsam; idea,thing,event
poor; arm ärmer; person
poor; schlecht; idea,text,food
rich; reich; person
rich; fett; food
fair; blond; person
fair; gerecht; idea,event
sharp; scharf schärfer; thing
sharp; steil; place
long; lang länger; text,event,time,clothing,place
bad/worse; schlecht; event,drink,device
expensive; teuer/teur teurer; goods
cheap; billig; goods
strong; stark stärker; being,drink
weak; schwach schwächer; being,drink
red/redder; rot röter; thing,clothing,vehicle,plant,furniture
blue; blau; thing,clothing,vehicle,furniture
green; grün; thing,clothing,plant,vehicle
black; schwarz schwärzer; animal,thing,clothing,vehicle,furniture
white; weiß; animal,clothing,building,plant
yellow/yellower; gelb; thing,plant,clothing
dark; dunkel/dunkl dunkler; building,place,animal
clever/cleverer; klug klüger; being
stupid; dumm dümmer; being,idea
kind; freundlich; person
tired; müde; being
happy/happier; glücklich; being
sad/sadder; traurig; being,text
hungry/hungrier; hungrig; being
ill; krank kränker; being
healthy/healthier; gesund gesünder; being,food
warm; warm wärmer; food,clothing,building
cold; kalt kälter; drink,food,place
hot/hotter; heiß; food,drink
heavy/heavier; schwer; thing,furniture,device
empty/emptier; leer; building,thing
full; voll; thing,building
clean; sauber; building,clothing,thing
dirty/dirtier; schmutzig; building,clothing,thing
fast; schnell; being,vehicle
slow; langsam; being,vehicle,device
quiet/quieter; ruhig; being,place
loud; laut; person,instrument,event,device
famous; berühmt; person,building,text
important; wichtig; idea,event,text
interesting; interessant; idea,text,event
dangerous; gefährlich; animal,place,idea,thing
brave; mutig; person
proud; stolz; person
angry/angrier; wütend; being
nice; nett; person
fresh; frisch; food,drink,plant
sweet; süß; food,drink
deep; tief; place
wide; breit; place
wild; wild; animal,place
modern/more_modern; modern; building,device,instrument
broken/more_broken; kaputt; device,vehicle,instrument
wooden/more_wooden; hölzern; furniture,thing,instrument
round; rund; thing,furniture
secret/more_secret; geheim; text,idea,place
"""

# English; German; where it may stand: past, present (also future), any
TIMES = """
today; heute; any
yesterday; gestern; past
tomorrow; morgen; present
now; jetzt; present
in the evening; am Abend; any
on Monday; am Montag; any
on Sunday; am Sonntag; any
last week; letzte Woche; past
last year; letztes Jahr; past
next week; nächste Woche; present
every day; jeden Tag; any
in the morning; am Morgen; any
at night; in der Nacht; any
soon; bald; present
last night; gestern Abend; past
in summer; im Sommer; any
in winter; im Winter; any
on Friday; am Freitag; any
recently; neulich; past
next month; nächsten Monat; present
then; dann; any
"""
FREQUENCIES = """
often=oft; always=immer; never=nie; sometimes=manchmal; rarely=selten; usually=meistens; still=noch immer
"""
MANNERS = """
quickly=schnell; gladly=gern; slowly=langsam; together=zusammen; alone=allein; secretly=heimlich; quietly=leise;
carefully=vorsichtig; immediately=sofort; again=wieder; without help=ohne Hilfe;
in vain=vergeblich; by mistake=aus Versehen
"""
SENTENCE_ADVERBS = """
perhaps=vielleicht; unfortunately=leider; fortunately=zum Glück; of course=natürlich; probably=wahrscheinlich
"""

# English at rest; English in motion; German; kinds. The German case is dative at rest and
# accusative in motion.
TWO_WAY = """
in; into; in; building,place,vehicle
on; onto; auf; furniture,place
behind; behind; hinter; building,furniture,vehicle,plant,place
in front of; in front of; vor; building,furniture,vehicle,device
next to; next to; neben; building,furniture,vehicle,plant,device,person
under; under; unter; furniture,vehicle,plant
over; over; über; building,place,furniture
"""
# English; German; case; kinds
ONE_WAY = """
with; mit; dat; person
without; ohne; acc; person
for; für; acc; person
near; bei; dat; building,place
after; nach; dat; event
during; während; gen; event
because of; wegen; gen; event,idea
through; durch; acc; place
with; mit; dat; thing
at; bei; dat; event
before; vor; dat; event
"""
SUBORDINATORS = """
because=weil; when=wenn; if=falls; although=obwohl; while=während; before=bevor; as soon as=sobald; since=da
"""
