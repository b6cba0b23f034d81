"""The real verbs of the built-in language, written by hand.

One line a verb: ``English; German; frame; kinds of subject; kinds of object``.

English is the base form (``get+up``: the word after the plus stays put), and past and participle
where irregular. German is the infinitive (``an|rufen``: separable), the third person singular
(``-`` if regular), the participle without the particle (omitted if regular), and ``s`` for verbs
whose perfect takes *sein*.

Frames: i intransitive, t accusative object, d dative object, g dative and accusative,
p:PREPOSITION:CASE object behind a preposition, m motion towards a place, l being at a place, u
moving an object to a place, c that-clause, w whether-clause, z infinitive with *zu*. Several lines
with one English verb and different German ones are the verbs that only their subject or object
tells apart. The order within a frame is the order of frequency.
"""

VERBS = """
see saw seen; sehen sieht gesehen; t; being; any
have had had; haben - gehabt; t; person; goods
buy bought bought; kaufen; t; person; goods
find found found; finden - gefunden; t; being; any
know knew known; kennen - gekannt; t; person; person,place,building,city
take took taken; nehmen nimmt genommen; t; person; goods
read read read; lesen liest gelesen; t; person; text
call; an|rufen - gerufen; t; person; person
eat ate eaten; essen isst gegessen; t; person; food
eat ate eaten; fressen frisst gefressen; t; animal; food,plant
love; lieben; t; person; any
visit; besuchen; t; person; person,city,building
save; retten; t; person; being
save; sparen; t; person; money
save; speichern; t; person; text
miss; vermissen; t; person; being
miss; verpassen; t; person; vehicle,event
spend spent spent; aus|geben gibt gegeben; t; person; money
spend spent spent; verbringen - verbracht; t; person; time
write wrote written; schreiben - geschrieben; t; person; text
sell sold sold; verkaufen; t; person; goods
drink drank drunk; trinken - getrunken; t; being; drink
wear wore worn; tragen trägt getragen; t; person; clothing
invite; ein|laden lädt geladen; t; person; person
pick+up; ab|holen; t; person; person,goods
put+on put put; an|ziehen - gezogen; t; person; clothing
take+off took taken; aus|ziehen - gezogen; t; person; clothing
throw+away threw thrown; weg|werfen wirft geworfen; t; person; thing,text,food
turn+on; ein|schalten; t; person; device
turn+off; aus|schalten; t; person; device
look+at; an|sehen sieht gesehen; t; being; any
look+for; suchen; t; being; any
clean+up; auf|räumen; t; person; building
bring+along brought brought; mit|bringen - gebracht; t; person; goods,person
ride rode ridden; reiten - geritten; t; person; animal
ride rode ridden; fahren fährt gefahren; t; person; vehicle
change; ändern; t; person; idea
change; wechseln; t; person; money,clothing
change; um|bauen; t; person; building
try; probieren; t; person; food,drink
try; an|probieren; t; person; clothing
run ran run; leiten; t; person; building
play; spielen; t; person; instrument,event
leave left left; verlassen verlässt verlassen; t; person; building,city,person
meet met met; treffen trifft getroffen; t; person; person
answer; beantworten; t; person; idea
grow grew grown; an|bauen; t; person; plant,food
lose lost lost; verlieren - verloren; t; person; goods,money
win won won; gewinnen - gewonnen; t; person; event,money
steal stole stolen; stehlen stiehlt gestohlen; t; person; goods,money
hold held held; halten hält gehalten; t; person; thing,clothing,text
hold held held; ab|halten hält gehalten; t; person; event
build built built; bauen; t; person; building,vehicle
destroy; zerstören; t; being; any
paint; malen; t; person; being,plant
paint; an|streichen - gestrichen; t; person; building,furniture
wash; waschen wäscht gewaschen; t; person; clothing,animal
wash; ab|waschen wäscht gewaschen; t; person; thing
hear heard heard; hören; t; being; being,instrument
understand understood understood; verstehen - verstanden; t; person; idea,text,person
forget forgot forgotten; vergessen vergisst vergessen; t; person; any,idea
repair; reparieren; t; person; device,vehicle,furniture
break broke broken; zerbrechen zerbricht zerbrochen; t; person; thing,device
break broke broken; brechen bricht gebrochen; t; person; idea
cook; kochen; t; person; food
push; schieben - geschoben; t; person; vehicle,furniture
pull; ziehen - gezogen; t; being; vehicle,furniture
close; schließen - geschlossen; t; person; building
introduce; vor|stellen; t; person; person
introduce; ein|führen; t; person; idea
finish; beenden; t; person; event,text
describe; beschreiben - beschrieben; t; person; any
hate; hassen; t; person; any
catch caught caught; fangen fängt gefangen; t; being; animal
catch caught caught; erreichen; t; person; vehicle
give gave given; geben gibt gegeben; g; person; goods
show showed shown; zeigen; g; person; any
send sent sent; schicken; g; person; goods
bring brought brought; bringen - gebracht; g; person; goods
tell told told; erzählen; g; person; text
teach taught taught; bei|bringen - gebracht; g; person; idea
lend lent lent; leihen - geliehen; g; person; goods,money
offer; an|bieten bietet geboten; g; person; goods,drink
promise; versprechen verspricht versprochen; g; person; goods
give+back gave given; zurück|geben gibt gegeben; g; person; goods
sleep slept slept; schlafen schläft geschlafen; i; being;
work; arbeiten; i; person;
laugh; lachen; i; person;
come+back came come; zurück|kommen - gekommen s; i; being;
get+up got got; auf|stehen - gestanden s; i; person;
arrive; an|kommen - gekommen s; i; person,vehicle;
sing sang sung; singen - gesungen; i; person;
dance; tanzen; i; person;
fall+asleep fell fallen; ein|schlafen schläft geschlafen s; i; being;
wake+up woke woken; auf|wachen s; i; being;
leave left left; ab|fahren fährt gefahren s; i; vehicle;
leave left left; ab|reisen s; i; person;
grow grew grown; wachsen wächst gewachsen s; i; plant,animal;
die died died; sterben stirbt gestorben s; i; being;
cry; weinen; i; person;
smile; lächeln; i; person;
disappear; verschwinden - verschwunden s; i; any;
go+out went gone; aus|gehen - gegangen s; i; person;
move+out; aus|ziehen - gezogen s; i; person;
bark; bellen; i; animal;
run ran run; laufen läuft gelaufen; i; device;
help; helfen hilft geholfen; d; person; person
thank; danken; d; person; person
follow; folgen s; d; being; being
belong+to; gehören; d; goods; person
listen+to; zu|hören; d; person; person
trust; vertrauen; d; person; being
answer; antworten; d; person; person
congratulate; gratulieren; d; person; person
believe; glauben; d; person; person
wait+for; warten; p:auf:acc; person; any
think+of thought thought; denken - gedacht; p:an:acc; person; any
talk+about; sprechen spricht gesprochen; p:über:acc; person; any,idea
dream+of; träumen; p:von:dat; person; any
take+part+in took taken; teil|nehmen nimmt genommen; p:an:dat; person; event
laugh+about; lachen; p:über:acc; person; idea,being
depend+on; ab|hängen - gehangen; p:von:dat; idea,event; idea,event,money
look+after; auf|passen; p:auf:acc; person; being,goods
go went gone; gehen - gegangen s; m; person;
run ran run; laufen läuft gelaufen s; m; being;
drive drove driven; fahren fährt gefahren s; m; person,vehicle;
fly flew flown; fliegen - geflogen s; m; person,animal;
come came come; kommen - gekommen s; m; being;
jump; springen - gesprungen s; m; being;
swim swam swum; schwimmen - geschwommen s; m; being;
climb; klettern s; m; being;
travel travelled travelled; reisen s; m; person;
crawl; kriechen - gekrochen s; m; animal;
fall fell fallen; fallen fällt gefallen s; m; thing,being;
wander; wandern s; m; person;
stand stood stood; stehen - gestanden; l; any;
lie lay lain; liegen - gelegen; l; any;
sit sat sat; sitzen - gesessen; l; being;
live; wohnen; l; person;
sleep slept slept; schlafen schläft geschlafen; l; being;
wait; warten; l; being;
stay; bleiben - geblieben s; l; being;
work; arbeiten; l; person;
play; spielen; l; being;
hang hung hung; hängen - gehangen; l; clothing,text;
put put put; legen; u; person; text,clothing
put put put; stellen; u; person; furniture,thing,vehicle
put put put; setzen; u; person; being
carry; tragen trägt getragen; u; person; goods,furniture
throw threw thrown; werfen wirft geworfen; u; person; thing
push; schieben - geschoben; u; person; furniture,vehicle
say said said; sagen; c; person;
know knew known; wissen weiß gewusst; c; person;
think thought thought; denken - gedacht; c; person;
believe; glauben; c; person;
hope; hoffen; c; person;
fear; befürchten; c; person;
hear heard heard; hören; c; person;
promise; versprechen verspricht versprochen; c; person;
claim; behaupten; c; person;
explain; erklären; c; person;
ask; fragen; w; person;
know knew known; wissen weiß gewusst; w; person;
find+out found found; heraus|finden - gefunden; w; person;
try; versuchen; z; person;
hope; hoffen; z; person;
forget forgot forgotten; vergessen vergisst vergessen; z; person;
begin began begun; an|fangen fängt gefangen; z; person;
plan planned planned; planen; z; person;
promise; versprechen verspricht versprochen; z; person;
decide; beschließen - beschlossen; z; person;
refuse; ab|lehnen; z; person;
"""
