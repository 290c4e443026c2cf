# Each target sets up all it needs: a virtual environment in .venv with the tested versions of constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test lint types pytest format clean

demo: $(VENV)/.demo ## train on upright digits, test on rotated ones (3 minutes)
	$(BIN)/sfcnn demo --out demo-results

test: lint types pytest ## lint, types and the whole test suite

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

pytest: $(VENV)/.dev
	$(BIN)/pytest

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "sfcnn needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/pip pyproject.toml constraints.txt
	@echo "Installing sfcnn and what the demo needs into $(VENV) ..."
	$(INSTALL) '.[demo]'
	@touch $@

$(VENV)/.dev: $(BIN)/pip pyproject.toml constraints.txt
	@echo "Installing sfcnn and what the tests need into $(VENV) ..."
	$(INSTALL) '.[dev]'
	@touch $@ $(VENV)/.demo
