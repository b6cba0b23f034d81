"""Measure the peak memory of decoding with an artifact.

Usage: ``python -m scalesearch.export.peak_memory FOLDER SETUP``. It is started by
:func:`scalesearch.export.latency.measure_peak_memory`.
"""

import importlib
import json
import sys
from pathlib import Path

from scalesearch.cost.latency_model import DecodingSetup
from scalesearch.export.export import ARTIFACT_FILE, Artifact, open_artifact
from scalesearch.export.formats import get_format
from scalesearch.export.latency import pinned_threads, random_sources
from scalesearch.files import read_json
from scalesearch.train.scoring.measure import read_peak_resident, reset_peak_memory

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    setup = DecodingSetup(**json.loads(sys.argv[2]))
    for package in get_format(read_json(folder / ARTIFACT_FILE, Artifact).format).packages:
        importlib.import_module(package)
    reset_peak_memory()
    before = read_peak_resident()[0]
    with pinned_threads(setup.threads):
        described, decoder = open_artifact(folder, setup.threads)
        decoder.decode_fixed_length(random_sources(setup, described.tokenizer.vocab_size),
                                    setup.target, setup.beam)
    print(json.dumps({"peak": read_peak_resident()[0], "own": read_peak_resident()[0] - before}))
