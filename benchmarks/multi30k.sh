#!/bin/sh
# Prepare Multi30k, English to German, for the study files: raw and tokenized text of three splits.
#   benchmarks/multi30k.sh FOLDER [CLONE]      # CLONE: an existing clone of the dataset's repository
set -eu
folder=$1
clone=${2:-$folder/dataset}
mkdir -p "$folder"
[ -d "$clone" ] || git clone --depth 1 https://github.com/multi30k/dataset "$clone"
for split in train val test_2016_flickr; do
    for language in en de; do
        gzip -dc "$clone/data/task1/raw/$split.$language.gz" > "$folder/$split.$language"
        cp "$clone/data/task1/tok/$split.lc.norm.tok.$language" "$folder/$split.tok.$language"
    done
done
for expected in train:29000 val:1014 test_2016_flickr:1000; do
    for file in "$folder/${expected%:*}".*; do
        lines=$(wc -l < "$file")
        [ "$lines" -eq "${expected#*:}" ] || { echo "$file has $lines lines, not ${expected#*:}" >&2; exit 1; }
    done
done
echo "export MULTI30K=$folder"
