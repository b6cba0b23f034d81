"""The real nouns of the built-in language, written by hand.

One line a noun: English (``man/men`` where the plural is irregular), German singular, gender,
German plural (``=`` for a mass noun without one), then optionally the form it takes as the first
part of a compound (default: the singular) and ``weak`` for nouns that end in -n in every other case
(der Kunde, den Kunden). A line that starts with ``#`` opens a kind: the semantic class by which
verbs, adjectives and prepositions choose their company. The order within a kind is the order of
frequency.
"""

NOUNS = """
# person
man/men Mann m Männer Männer
woman/women Frau f Frauen Frauen
child/children Kind n Kinder Kinder
teacher Lehrer m Lehrer
friend Freund m Freunde Freundes
doctor Arzt m Ärzte
mother Mutter f Mütter
father Vater m Väter
boy Junge m Jungen Jungen weak
girl Mädchen n Mädchen
neighbour Nachbar m Nachbarn Nachbar weak
brother Bruder m Brüder
sister Schwester f Schwestern
student Student m Studenten Studenten weak
king König m Könige Königs
queen Königin f Königinnen Königinnen
customer Kunde m Kunden Kunden weak
judge Richter m Richter
lawyer Anwalt m Anwälte Anwalts
worker Arbeiter m Arbeiter
farmer Bauer m Bauern Bauern weak
daughter Tochter f Töchter
son Sohn m Söhne
thief/thieves Dieb m Diebe Diebes
waiter Kellner m Kellner
soldier Soldat m Soldaten Soldaten weak
guest Gast m Gäste Gäste
boss Chef m Chefs
player Spieler m Spieler
aunt Tante f Tanten Tanten
uncle Onkel m Onkel
colleague Kollege m Kollegen Kollegen weak
engineer Ingenieur m Ingenieure
secretary Sekretärin f Sekretärinnen Sekretärinnen
gardener Gärtner m Gärtner
prince Prinz m Prinzen Prinzen weak
nurse Pflegerin f Pflegerinnen Pflegerinnen
pianist Pianist m Pianisten Pianisten weak
painter Maler m Maler
driver Fahrer m Fahrer
baker Bäcker m Bäcker
tourist Tourist m Touristen Touristen weak
hunter Jäger m Jäger
witch Hexe f Hexen Hexen
pirate Pirat m Piraten Piraten weak
lady Dame f Damen Damen
# animal
dog Hund m Hunde Hunde
cat Katze f Katzen Katzen
horse Pferd n Pferde Pferde
bird Vogel m Vögel
fish/fish Fisch m Fische
cow Kuh f Kühe
pig Schwein n Schweine Schweine
duck Ente f Enten Enten
wolf/wolves Wolf m Wölfe Wolfs
bear Bär m Bären Bären weak
sheep/sheep Schaf n Schafe
elephant Elefant m Elefanten Elefanten weak
goose/geese Gans f Gänse Gänse
hare Hase m Hasen Hasen weak
snake Schlange f Schlangen Schlangen
# food
bread Brot n Brote
apple Apfel m Äpfel
cake Kuchen m Kuchen
egg Ei n Eier Eier
potato Kartoffel f Kartoffeln
soup Suppe f Suppen Suppen
cheese Käse m Käse
tomato Tomate f Tomaten Tomaten
pear Birne f Birnen Birnen
sausage Wurst f Würste
fig Feige f Feigen Feigen
# drink
water Wasser n =
milk Milch f =
beer Bier n Biere
wine Wein m Weine
coffee Kaffee m Kaffees
tea Tee m Tees
# money
money Geld n =
gold Gold n =
credit Kredit m Kredite
wage Lohn m Löhne
coin Münze f Münzen Münz
# thing
ball Ball m Bälle
box Kiste f Kisten Kisten
bottle Flasche f Flaschen Flaschen
cup Tasse f Tassen Tassen
knife/knives Messer n Messer
stone Stein m Steine
candle Kerze f Kerzen Kerzen
lock Schloss n Schlösser
stamp Briefmarke f Briefmarken Briefmarken
envelope Umschlag m Umschläge
bag Tasche f Taschen Taschen
glass Glas n Gläser
basket Korb m Körbe
umbrella Regenschirm m Regenschirme
cigarette Zigarette f Zigaretten Zigaretten
nest Nest n Nester
feather Vogelfeder f Vogelfedern
wing Flügel m Flügel
treasure Schatz m Schätze
toy Spielzeug n Spielzeuge
# furniture
chair Stuhl m Stühle
bed Bett n Betten Betten
cupboard Schrank m Schränke
sofa Sofa n Sofas
shelf/shelves Regal n Regale
carpet Teppich m Teppiche
# building
house Haus n Häuser
school Schule f Schulen Schul
church Kirche f Kirchen Kirchen
shop Laden m Läden
kitchen Küche f Küchen Küchen
room Zimmer n Zimmer
hotel Hotel n Hotels
restaurant Restaurant n Restaurants
hospital Krankenhaus n Krankenhäuser
office Büro n Büros
castle Schloss n Schlösser
tower Turm m Türme
station Bahnhof m Bahnhöfe Bahnhofs
zoo Zoo m Zoos
museum Museum n Museen Museums
company Firma f Firmen Firmen
library Bibliothek f Bibliotheken Bibliotheks
# place
garden Garten m Gärten
town Stadt f Städte
street Straße f Straßen Straßen
river Fluss m Flüsse
forest Wald m Wälder
lake See m Seen
village Dorf n Dörfer
bridge Brücke f Brücken Brücken
market Markt m Märkte
mountain Berg m Berge
island Insel f Inseln
beach Strand m Strände
park Park m Parks
cave Höhle f Höhlen Höhlen
harbour Hafen m Häfen
field Feld n Felder
ocean Meer n Meere Meeres
border Grenze f Grenzen Grenz
# vehicle
car Auto n Autos
train Zug m Züge
bicycle Fahrrad n Fahrräder
ship Schiff n Schiffe Schiffs
boat Boot n Boote Boots
bus Bus m Busse
plane Flugzeug n Flugzeuge
cart Wagen m Wagen
# clothing
coat Mantel m Mäntel
hat Hut m Hüte
shirt Hemd n Hemden
shoe Schuh m Schuhe
dress Kleid n Kleider Kleider
glove Handschuh m Handschuhe
skirt Rock m Röcke
jacket Jacke f Jacken Jacken
# text
book Buch n Bücher Bücher
newspaper Zeitung f Zeitungen Zeitungs
story Geschichte f Geschichten Geschichten
picture Bild n Bilder Bilder
report Bericht m Berichte
document Dokument n Dokumente Dokumenten
contract Vertrag m Verträge Vertrags
poem Gedicht n Gedichte
calendar Kalender m Kalender
map Karte f Karten Karten
# device
machine Maschine f Maschinen Maschinen
lamp Lampe f Lampen Lampen
clock Uhr f Uhren Uhren
computer Computer m Computer
telephone Telefon n Telefone
radio Radio n Radios
keyboard Tastatur f Tastaturen
oven Ofen m Öfen
# instrument
piano Klavier n Klaviere
violin Geige f Geigen Geigen
guitar Gitarre f Gitarren Gitarren
drum Trommel f Trommeln
flute Flöte f Flöten Flöten
# idea
question Frage f Fragen Frage
answer Antwort f Antworten
idea Idee f Ideen Ideen
plan Plan m Pläne
problem Problem n Probleme
mistake Fehler m Fehler
word Wort n Wörter Wörter
truth Wahrheit f Wahrheiten Wahrheits
law Gesetz n Gesetze Gesetzes
dream Traum m Träume
rule Regel f Regeln
price Preis m Preise
# event
game Spiel n Spiele
party Feier f Feiern
war Krieg m Kriege Kriegs
meeting Sitzung f Sitzungen Sitzungs
lesson Stunde f Stunden Stunden
concert Konzert n Konzerte
wedding Hochzeit f Hochzeiten Hochzeits
journey Reise f Reisen Reise
meal Essen n Essen Essens
# plant
tree Baum m Bäume
flower Blume f Blumen Blumen
rose Rose f Rosen Rosen
leaf/leaves Blatt n Blätter Blätter
grass Gras n Gräser
mushroom Pilz m Pilze
# body
hand Hand f Hände
eye Auge n Augen Augen
head Kopf m Köpfe
finger Finger m Finger
heart Herz n Herzen
foot/feet Fuß m Füße
# group
team Mannschaft f Mannschaften Mannschafts
class Klasse f Klassen Klassen
family Familie f Familien Familien
# time
day Tag m Tage
week Woche f Wochen
year Jahr n Jahre
month Monat m Monate
hour Stunde f Stunden
evening Abend m Abende
summer Sommer m Sommer
"""
