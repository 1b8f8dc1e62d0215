# Everything here works on a machine that has only Python >= 3.10 and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow check audit clean

demo: $(INSTALLED)  ## prune, fuse and evaluate a small ViT on real digits
	$(BIN)/compress run digits

test: $(INSTALLED)  ## the default test suite, one process per core
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(INSTALLED)  ## the long checks: wheel in an empty environment, real data, many kills
	$(BIN)/python -m pytest -m slow --run-slow

check: $(INSTALLED)  ## what CI runs: format, lint, types, import arrows, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

audit: $(INSTALLED)  ## known vulnerabilities of the installed packages; needs a network, so no part of check
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --skip-editable

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) dist build
