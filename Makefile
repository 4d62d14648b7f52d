# Everything runs in a private virtual environment that is rebuilt when the project's requirements change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# What `make run` needs is a fifth of what the tests need; --no-compile saves a third of its set-up.
RUNNABLE := $(VENV)/.runnable
CHECK_PYTHON = $(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}; try: make PYTHON=python3.12")'
INSTALL = PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: help run test lint types suite test-slow test-service test-lowest public-types dist bench bakeoff soak mutants docs docs-serve format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml lab/pyproject.toml server/pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip # dependency groups need 25.1
	$(INSTALL) -e ".[plots,arrow,sklearn,gym,coba,river]" -e "lab[cluster,jax,report]" -e "server[postgresql]" --group dev
	@touch $(RUNNABLE) $@

$(RUNNABLE): pyproject.toml lab/pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	@echo "Setting up in $(VENV): about half a minute."
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --no-compile -e ".[plots,sklearn]" -e lab
	@echo "$$(ls -d $(VENV)/lib/python*/site-packages/*.dist-info | wc -l) packages are installed, pip among them; the studies take about a minute."
	@touch $@

run: $(or $(wildcard $(READY)),$(RUNNABLE)) ## the paper's figures and two real tables, shortened, with a report: results/quick/report.html
	$(BIN)/kernel-bandits reproduce --quick

test: lint types suite ## lint, types and the whole suite

lint: $(READY) ## ruff, rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	$(BIN)/mypy

suite: $(READY) ## the tests that run in minutes
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: $(READY) ## the long statistical tests that `make test` leaves out
	$(BIN)/pytest -n 2 -m slow

test-service: $(READY) ## the long tests of the service: kills, fail-overs, damaged bodies, schemathesis (an hour)
	$(BIN)/pytest -n 0 -s -m slow tests/server

# jax and river need newer versions of NumPy and SciPy than the library does.
LOWEST := .venv-lowest
test-lowest: ## the suite with the oldest NumPy, SciPy, pandas, polars that are supported
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(LOWEST)/bin/python -m pip install --quiet -c constraints-lowest.txt \
		-e ".[plots,arrow,sklearn,gym,coba]" -e "lab[cluster,report]" -e "server[postgresql]" --group test
	$(LOWEST)/bin/pytest -n 2 -m "not slow" --ignore tests/lab/accelerated --ignore tests/integrations/test_river.py

public-types: $(READY) ## the share of public names whose types a second checker knows, and the examples
	$(INSTALL) --group release
	$(BIN)/basedpyright --level error examples
	$(BIN)/basedpyright --ignoreexternal --verifytypes kernel_bandits | tail -n 4

dist: $(READY) ## the release candidate: wheels and sdists in dist/, checked and tried in empty environments
	$(INSTALL) --group release
	$(BIN)/python .ci/dist.py

bench: $(READY) ## speed and memory against floors and peers: tables, and results/bench.json (half an hour)
	$(BIN)/python benchmarks/bench.py

bakeoff: $(READY) ## real tables against every peer at its best; goes on where it was stopped (hours): results/bakeoff
	$(BIN)/python benchmarks/bakeoff/run.py

soak: $(READY) ## a million rounds on two environments: latency and memory (ten minutes)
	$(BIN)/python benchmarks/soak.py

mutants: $(READY) ## change one operator of the core at a time and see whether a test notices (hours; COUNT=200)
	$(BIN)/python benchmarks/mutants.py --count $(or $(COUNT),200)

docs: $(READY) ## the documentation site in results/site, warnings as errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: $(READY) ## the documentation site on http://127.0.0.1:8000, rebuilt as pages change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

format: $(READY) ## let ruff rewrite the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and everything generated
	rm -rf $(VENV) $(LOWEST) results .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
