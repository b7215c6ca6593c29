# make run    start the app on http://127.0.0.1:7860
# make test   install what the tests need, and run them
# make check  style, import directions, JavaScript
# make thorough  the tests of exactness for every method, setting and wrong variant, of which make test takes a sample of each
#                family; and what of the page and of training takes long
# make soak   the long guard: fuzzers, floods, kills, limits; and known weaknesses of what we install
# make test-engines  lanes from llama.cpp's real server, and from one that SPECVIZ_TEST_SERVER names; compiles llama.cpp
# make cards  write what the page says of each method, after a change of a method's file

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A test a worker a core; the targets compute with one thread each.
WORKERS ?= 2

.PHONY: run test test-engines thorough check cards soak clean

run: $(VENV)/run.done
	$(BIN)/python app.py

test: $(VENV)/dev.done $(VENV)/browser.done
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(ARGS)

thorough: $(VENV)/dev.done $(VENV)/browser.done
	OMP_NUM_THREADS=1 SPECVIZ_TEST_THOROUGH=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m thorough $(ARGS)

test-engines: $(VENV)/dev.done
	$(PIP) install -r requirements-engines.txt
	SPECVIZ_TEST_ENGINES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m engines $(ARGS)

check: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q tests/test_house.py

soak: $(VENV)/dev.done $(VENV)/browser.done
	SPECVIZ_TEST_SOAK=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m soak $(ARGS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/attack
	@$(PIP) install -q pip-audit || { echo "pip-audit cannot be had here: left out"; exit 0; }; \
	said=$$($(BIN)/pip-audit -r requirements.txt 2>&1); code=$$?; echo "$$said"; \
	test $$code = 0 || ! echo "$$said" | grep -q "known vulnerabilit"

cards: $(VENV)/run.done
	$(BIN)/python -m specviz list --write

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "specviz needs Python 3.11 or newer; say which with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first, by itself: where a build for the processor is offered under this version it is taken, which spares some GB;
# where that version cannot be had, the range in requirements.txt decides.
$(VENV)/run.done: requirements.txt | $(BIN)/python
	$(BIN)/python -c 'import torch' 2>/dev/null || $(PIP) install torch==2.13.0 || true
	$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/dev.done: requirements-dev.txt $(VENV)/run.done
	$(PIP) install -r requirements-dev.txt
	@touch $@

# Chromium from the distribution where we may install it, without its windows where that is offered (faster), else Playwright's
# own; and letters for emoji, CJK and Arabic.
$(VENV)/browser.done: $(VENV)/dev.done
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; apt-get update -q && \
		apt-get install -q -y --no-install-recommends fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji && \
		{ apt-get install -q -y --no-install-recommends chromium-headless-shell || \
			apt-get install -q -y --no-install-recommends chromium; }; \
	fi; test -x /usr/bin/chromium-headless-shell || test -x /usr/bin/chromium || $(BIN)/python -m playwright install chromium
	@touch $@

clean:
	rm -rf $(VENV)
