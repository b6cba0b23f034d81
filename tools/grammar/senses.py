"""Nouns that stand apart in the built-in language: those with two senses, and proper names."""

# Two senses of one English noun: German, gender, plural, kind, and the nouns that give the sense
# away. A sense is
# drawn only together with one of its cues, somewhere in the sentence, and never with a cue of the
# other sense.
SENSES = """
bank Ufer n Ufer place: river lake boat fish
bank Bank f Banken building: money customer credit coin
spring Quelle f Quellen place: mountain water village
spring Feder f Federn thing: clock sofa machine
bat Fledermaus f Fledermäuse animal: cave tower forest
bat Schläger m Schläger thing: ball player team
match Streichholz n Streichhölzer thing: candle cigarette oven
match Spiel n Spiele event: ball player team
key Schlüssel m Schlüssel thing: lock house cupboard
key Taste f Tasten thing: piano keyboard pianist
crane Kran m Kräne device: harbour ship worker
crane Kranich m Kraniche animal: lake nest egg
table Tisch m Tische furniture: chair kitchen meal
table Tabelle f Tabellen text: report computer document
trunk Stamm m Stämme plant: tree forest leaf
trunk Rüssel m Rüssel body: elephant zoo
palm Palme f Palmen plant: beach island ocean
palm Handfläche f Handflächen body: finger glove hand
bill Rechnung f Rechnungen text: waiter restaurant hotel
bill Schnabel m Schnäbel body: bird duck goose
date Dattel f Datteln food: market fig cake
date Termin m Termine event: calendar secretary office
plant Pflanze f Pflanzen plant: garden flower gardener
plant Werk n Werke building: engineer machine worker
seal Robbe f Robben animal: ocean beach fish
seal Siegel n Siegel thing: document envelope contract
court Gericht n Gerichte building: judge lawyer thief
court Hof m Höfe building: king queen prince
pupil Schüler m Schüler person: teacher school class
pupil Pupille f Pupillen body: eye doctor
chest Truhe f Truhen furniture: treasure gold pirate
chest Brust f Brüste body: heart nurse hospital
"""

# People and towns have no article; the letter is the gender of the pronoun that stands for them.
NAMES = """
Anna f; Peter m; Maria f; Paul m; Lena f; Felix m; Clara f; Martin m; Julia f; Anton m; Emma f; Simon m; Laura f;
Robert m; Sophie f; Stefan m; Nina f; Oskar m; Helga f; Werner m; Ingrid f; Bruno m; Greta f; Konrad m; Ida f;
Gustav m; Frieda f; Albert m; Paula f; Otto m
"""
CITIES = """
Berlin; Hamburg; Dresden; Leipzig; Bremen; London; Paris; Madrid; Lissabon=Lisbon; Wien=Vienna; Köln=Cologne;
München=Munich; Rom=Rome; Prag=Prague; Warschau=Warsaw; Zürich=Zurich; Genf=Geneva; Brüssel=Brussels; Athen=Athens
"""
