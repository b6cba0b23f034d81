# Two commands: `make study` and `make test`. Both set up what they need in .venv first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
STUDY ?= studies/quick.yaml
INSTANCES ?= 4
SEED ?= $(shell date +%F)

# With bytecode, every process of the tests starts about three seconds faster.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: study test test-all test-blocks lint docs docs-slow gpu setup clean

study: $(VENV)/.installed
	$(BIN)/scalesearch study run $(STUDY) --resume

# At most five minutes of CPU time; some instances of every test that is quick.
test: $(VENV)/.installed lint
	$(BIN)/python -m tests.parts $(PYTEST)

# All tests, as in .ci/run. SEED selects INSTANCES instances of each slow parametrized test, others
# each day; `make test-all INSTANCES=1000` runs all.
test-all: $(VENV)/.installed lint
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal \
		--instances $(INSTANCES) --instances-seed $(SEED) $(PYTEST)

# What a new kind of block has to pass, in half a minute of CPU time.
test-blocks: $(VENV)/.installed
	$(BIN)/python -m pytest tests/blocks tests/nn/test_oracle.py \
		-k 'not covering_networks_pass or part-0 or part-4 or part-8' $(PYTEST)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy scalesearch/compression scalesearch/blocks scalesearch/spaces scalesearch/cost scalesearch/training scalesearch/config scalesearch/studies
	$(BIN)/lint-imports
	$(BIN)/python tools/language.py

# The site, from docs/ to build/site; a warning is an error.
docs: $(VENV)/.installed
	$(BIN)/python -m sphinx -W --keep-going -q docs build/site

# Commands of the pages at full length, with all training runs.
docs-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow tests/docs $(PYTEST)

# What a GPU does: correctness, speed, a study; report.json and report.md in runs/gpu.
gpu: $(VENV)/.installed
	$(BIN)/python benchmarks/gpu.py --out runs/gpu $(GPU)

setup: $(VENV)/.installed

# torch first and pinned: a looser first install may bring the CUDA build.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt torch
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs build dist
