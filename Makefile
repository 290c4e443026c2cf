# Each target sets up what it needs: a virtual environment in .venv with the tested versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ESCNN := .venv-escnn
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# One test file per process, so that its fixtures, such as trained runs, are created once.
PYTEST = $(BIN)/pytest --numprocesses logical --maxprocesses 8 --dist loadfile

.PHONY: demo test test-all package bench bench-escnn lint types docs notebooks pytest format clean

demo: $(VENV)/.demo ## train on upright digits, test on rotated ones
	$(BIN)/sfcnn demo --out demo-results

test: lint types docs pytest ## lint, types, documentation and the full test suite

# In addition to `make test`: the tests marked slow (long training, processes killed while saving, a full file system,
# wheel and sdist in an empty environment, which needs a package index) and five times as many fuzzed cases, newly drawn.
test-all: lint types docs ## make test and the slow tests
	SFCNN_FUZZ=5 $(PYTEST) -m ''

package: $(VENV)/.dev ## wheel and sdist in dist, installed and tested in an empty environment
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	SFCNN_DIST=dist $(BIN)/pytest -m slow tests/test_packaging.py

bench: $(VENV)/.dev bench-escnn ## time and memory, compared with escnn (BENCH='--only mnist' for a part, see benchmarks/README.md)
	$(BIN)/python benchmarks/speed.py --peer $(ESCNN)/bin/python $(BENCH)

bench-escnn: ## the environment of escnn; without a Fortran compiler the benchmark continues without it
	@sh benchmarks/setup_escnn.sh $(PYTHON) $(ESCNN)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.dev
	$(BIN)/mypy

# Without --quiet, which would hide warnings from --strict.
docs: $(VENV)/.dev ## the documentation site in build/docs; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

notebooks: $(VENV)/.dev ## run both notebooks and save their outputs
	$(BIN)/jupyter execute --inplace docs/notebooks/*.ipynb

# Once with the compiled kernel, if available, and the tests of convolutions again without it.
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
	@echo "Installing sfcnn and the requirements of the demo into $(VENV) ..."
	$(INSTALL) '.[demo]'
	@touch $@

$(VENV)/.dev: $(BIN)/pip pyproject.toml constraints.txt $(filter-out %.so %__pycache__,$(KERNEL))
	@echo "Installing sfcnn and the requirements of the tests into $(VENV) ..."
	$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.demo
