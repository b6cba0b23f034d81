"""``python -m scalesearch.export.memory FOLDER SETUP``: what :func:`scalesearch.export.latency.peak_memory` starts."""

import importlib
import json
import sys
from pathlib import Path

from scalesearch.cost.fit import Setup
from scalesearch.export.export import FILE, Artefact, open_artefact
from scalesearch.export.formats import format_of
from scalesearch.export.latency import pinned, sources
from scalesearch.files import read_json
from scalesearch.train.scoring.measure import forget_peak, peak_resident

if __name__ == "__main__":
    folder, setup = Path(sys.argv[1]), Setup(**json.loads(sys.argv[2]))
    for package in format_of(read_json(folder / FILE, Artefact).format).packages:
        importlib.import_module(package)
    forget_peak()
    before = peak_resident()[0]
    with pinned(setup.threads):
        described, decoder = open_artefact(folder, setup.threads)
        decoder.forced(sources(setup, described.tokenizer.vocab_size), setup.target, setup.beam)
    print(json.dumps({"peak": peak_resident()[0], "own": peak_resident()[0] - before}))
