# Each target sets up all it needs: a virtual environment in .venv with the tested versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ESCNN := .venv-escnn
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# One file of tests per process: fixtures of a file, such as trained runs, are made once.
PYTEST = $(BIN)/pytest --numprocesses logical --maxprocesses 8 --dist loadfile

.PHONY: demo test test-all package bench bench-escnn lint types docs notebooks pytest format clean

demo: $(VENV)/.demo ## train on upright digits, test on rotated ones
	$(BIN)/sfcnn demo --out demo-results

test: lint types docs pytest ## lint, types, the documentation and the whole test suite

# Beside `make test`: the tests marked slow (long training, processes killed while they save, a file system without room,
# wheel and sdist in an empty environment, which needs a package index) and five times as many fuzzed cases, drawn anew.
test-all: lint types docs ## make test and the slow tests
	SFCNN_FUZZ=5 $(PYTEST) -m ''

package: $(VENV)/.dev ## wheel and sdist in dist, installed into an empty environment and tried there
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	SFCNN_DIST=dist $(BIN)/pytest -m slow tests/test_packaging.py

bench: $(VENV)/.dev bench-escnn ## times and memory, beside escnn (BENCH='--only mnist' for a part, see benchmarks/README.md)
	$(BIN)/python benchmarks/speed.py --peer $(ESCNN)/bin/python $(BENCH)

bench-escnn: ## the environment of escnn; without a Fortran compiler the benchmark goes on without it
	@sh benchmarks/setup_escnn.sh $(PYTHON) $(ESCNN)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.dev
	$(BIN)/mypy

# Not --quiet: it would keep warnings from --strict.
docs: $(VENV)/.dev ## the documentation as a site in build/docs; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(VENV)/.dev ## run both notebooks and save what they show
	$(BIN)/jupyter execute --inplace docs/notebooks/*.ipynb

# Once with the compiled kernel, if there is one, and what computes convolutions once more without it.
pytest: $(VENV)/.dev
	$(PYTEST)
	SFCNN_KERNEL=0 $(PYTEST) tests/ops tests/nn

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(ESCNN) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sfcnn needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

KERNEL := hatch_build.py $(wildcard src/sfcnn/ops/spectral/kernel/*)

$(VENV)/.demo: $(BIN)/pip pyproject.toml constraints.txt $(filter-out %.so %__pycache__,$(KERNEL))
	@echo "Installing sfcnn and what the demo needs into $(VENV) ..."
	$(INSTALL) '.[demo]'
	@touch $@

$(VENV)/.dev: $(BIN)/pip pyproject.toml constraints.txt $(filter-out %.so %__pycache__,$(KERNEL))
	@echo "Installing sfcnn and what the tests need into $(VENV) ..."
	$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.demo
