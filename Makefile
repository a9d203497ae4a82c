# make quickstart   environment + the main job on the built-in corpus
# make test         environment + every check and test
# make check        environment + the quick part of them
# make chaos        environment + what takes long: kills, machines that come and go, whole stacks

PYTHON ?= python3
BIN := .venv/bin
IN_TWO := --numprocesses=2 --dist=loadfile
INSTALLED := .venv/.installed

.PHONY: help install quickstart test check chaos lint with-iproute2 with-chromium
help:
	@sed -n 's/^# make/make/p' Makefile

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || \
	  { echo "Python 3.11 or later is needed, as python3 or as PYTHON=/path/to/it."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed, but $$($(PYTHON) --version) is what $(PYTHON) is: set PYTHON=/path/to/it."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is needed (Debian: apt-get install python3-venv)."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

quickstart: $(INSTALLED)
	$(BIN)/traduko run quickstart

test: lint with-iproute2
	$(BIN)/pytest $(IN_TWO) -m "not ray and not long"
	$(BIN)/pytest -m "ray and not long"

check: lint
	$(BIN)/pytest $(IN_TWO) -m "not slow and not ray and not long"

chaos: $(INSTALLED) with-iproute2 with-chromium
	$(BIN)/pytest tests/system/chaos/long.py
	$(BIN)/pytest -m long

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Debian's packages that some tests need. Without them those do with less, or are skipped, and say so.
with-iproute2:
	@$(call debian,ip,iproute2,machines in namespaces)
with-chromium:
	@$(call debian,chromium,chromium,pages in a browser)

debian = command -v $(1) >/dev/null || \
  { export DEBIAN_FRONTEND=noninteractive; get="apt-get -qq -y --no-install-recommends install $(2)"; \
    echo "installing $(2), for tests of $(3)"; \
    $$get >/dev/null 2>&1 || { apt-get -qq update && $$get; } >/dev/null 2>&1; } || \
  echo "$(2) is missing, and cannot be installed from here: for tests of $(3), apt-get install $(2) as root."
