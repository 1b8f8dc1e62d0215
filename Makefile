# Everything here works on a machine that has only Python >= 3.10 and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AUDIT := .venv-audit
SPHINX := $(BIN)/python -m sphinx -q -W --keep-going -n -c docs -d build/doctrees
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow check audit reproduce docs docs-links clean

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

reproduce: $(INSTALLED)  ## every figure of docs/results.md, in hours; DATA is a folder as docs/data.md says
	@test -n "$(DATA)" || { echo "make reproduce DATA=FOLDER; docs/data.md says what the folder holds"; exit 2; }
	$(BIN)/python -m pip install --quiet --editable ".[reproduce]"
	$(BIN)/python benchmarks/reproduce "$(DATA)"

audit: $(INSTALLED)  ## known vulnerabilities of the installed packages; needs a network, so no part of check
	test -x $(AUDIT)/bin/python || $(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --upgrade pip pip-audit
	$(AUDIT)/bin/pip-audit --skip-editable --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  > $(AUDIT)/report.txt; code=$$?; cat $(AUDIT)/report.txt; exit $$code
	@! grep -q "could not be audited" $(AUDIT)/report.txt || { echo "what could not be audited is not known to be safe"; exit 1; }

docs: $(INSTALLED)  ## the pages as a site, build/docs/index.html; a dead link is an error
	$(SPHINX) -b html . build/docs

docs-links: $(INSTALLED)  ## links out of the pages; needs a network, so no part of check
	$(SPHINX) -b linkcheck . build/links

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) $(AUDIT) dist build
