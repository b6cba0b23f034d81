#!/bin/sh
# Prepare Multi30k, English to German, for the study files: raw and tokenized text of three splits.
#   benchmarks/multi30k.sh FOLDER [CLONE]
# CLONE is an existing clone of github.com/multi30k/dataset; without it, the script clones it, which
# needs internet access. If FOLDER has all files already, they are only checked.
set -eu
[ $# -ge 1 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
repository=https://github.com/multi30k/dataset
folder=$1
clone=${2:-$folder/dataset}
splits="train:29000 val:1014 test_2016_flickr:1000"
mkdir -p "$folder"

# Print the missing files and files with another number of lines; return 1 if there are any.
check() {
    wrong=0
    for split in $splits; do
        for suffix in en de tok.en tok.de; do
            file="$folder/${split%:*}.$suffix"
            if [ ! -f "$file" ]; then
                echo "missing: $file" >&2
                wrong=1
            elif [ "$(wc -l < "$file")" -ne "${split#*:}" ]; then
                echo "$file has $(wc -l < "$file") lines, not ${split#*:}" >&2
                wrong=1
            fi
        done
    done
    return $wrong
}

if ! check 2> /dev/null; then
    if [ ! -d "$clone/data/task1" ] && ! git clone --depth 1 "$repository" "$clone"; then
        echo "Cannot clone $repository. On a machine with internet access, clone it and copy it here;" >&2
        echo "then run: $0 $folder CLONE" >&2
        exit 1
    fi
    missing=0
    for split in $splits; do
        for language in en de; do
            raw="$clone/data/task1/raw/${split%:*}.$language.gz"
            tokenized="$clone/data/task1/tok/${split%:*}.lc.norm.tok.$language"
            for file in "$raw" "$tokenized"; do
                [ -f "$file" ] || { echo "missing in the clone: $file" >&2; missing=1; }
            done
            [ "$missing" -eq 1 ] && continue
            gzip -dc "$raw" > "$folder/${split%:*}.$language"
            cp "$tokenized" "$folder/${split%:*}.tok.$language"
        done
    done
    [ "$missing" -eq 0 ] || exit 1
    check || exit 1
fi
echo "export MULTI30K=$folder"
