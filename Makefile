# `make help` lists the targets.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Test workers, each with one thread; three on two cores took a little less time than two (docs/log/2026-11/house.md).
WORKERS ?= 3
# Tests of style and documentation: a part of the first tier, and not run again in the second.
CHECKED := tests/test_house.py tests/test_docs.py

.PHONY: help run test test-engines thorough check docs pictures soak dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.done ## install the requirements and open the page on http://127.0.0.1:7860
	$(BIN)/python app.py

check: $(VENV)/dev.done ## style, import directions, types, house rules, JavaScript (tier 1: two minutes)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/lint-imports --no-cache
	@if $(BIN)/python -m pyright --version >/dev/null 2>&1; then $(BIN)/python -m pyright --level error; \
		else echo "pyright does not run here (it needs node): types are not checked; the workflow checks them"; fi
	$(BIN)/python -m pytest -q $(CHECKED)
	$(BIN)/yamllint -s .github
	$(BIN)/hadolint Dockerfile Dockerfile.cuda
	@if test -d node_modules; then npm run --silent check; elif command -v node >/dev/null; then \
		find assets specviz/ui/static -name '*.js' -exec node --check {} \; ; echo "npm install: eslint, types (tsc) and prettier, too"; fi

test: $(VENV)/dev.done $(VENV)/browser.done ## install what the tests need and run them; a sample of each family (tier 2)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=15 -n $(WORKERS) --dist worksteal $(patsubst %,--ignore=%,$(CHECKED)) $(ARGS)

# In parts, so that no process keeps what all of them have opened.
OTHERS = $(filter-out tests/exactness tests/zoo tests/models tests/targets tests/training tests/ui tests/viewer tests/panels, \
	$(patsubst %/,%,$(dir $(wildcard tests/*/__init__.py))))
THOROUGH ?= "tests/exactness" "tests/zoo tests/models tests/targets tests/training" "tests/ui tests/viewer tests/panels" "$(OTHERS)"
thorough: $(VENV)/dev.done $(VENV)/browser.done ## every method, setting and spoiled variant; wheel and sdist (tier 3)
	@failed=0; for part in $(THOROUGH); do \
		OMP_NUM_THREADS=1 SPECVIZ_TEST_THOROUGH=1 $(BIN)/python -m pytest -q --durations=15 -n $(WORKERS) --dist worksteal -m thorough $(ARGS) $$part || failed=1; \
		done; exit $$failed

test-engines: $(VENV)/dev.done ## lanes of llama.cpp's server (compiled here) and of the one that SPECVIZ_TEST_SERVER names
	$(PIP) install -r requirements-engines.txt
	SPECVIZ_TEST_ENGINES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m engines $(ARGS)

soak: $(VENV)/dev.done $(VENV)/browser.done ## fuzzers, floods, kills, limits; known vulnerabilities of the requirements (long)
	SPECVIZ_TEST_SOAK=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m soak $(ARGS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/attack
	@$(PIP) install -q pip-audit || { echo "pip-audit is not available: skipped"; exit 0; }; \
	report=$$($(BIN)/pip-audit -r requirements.txt 2>&1); code=$$?; echo "$$report"; \
	test $$code = 0 || ! echo "$$report" | grep -q "known vulnerabilit"

docs: $(VENV)/run.done ## rewrite the generated pages of docs/: notes of the trace, fidelity, glossary, command line, errors, large files, trained drafters
	$(BIN)/python -m specviz list --write
	$(BIN)/python -m specviz list --fidelity > docs/fidelity.md
	$(BIN)/python -m tools.glossary
	$(BIN)/python -m tools.command_line
	$(BIN)/python -m tools.error_list
	$(BIN)/python -m tools.large_files
	$(BIN)/python -m specviz.training compare --ship

pictures: $(VENV)/dev.done $(VENV)/browser.done ## take the pictures of docs/ anew; look at each
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.ui.pictures $(ARGS)

dist: $(VENV)/dev.done ## build dist/*.whl and dist/*.tar.gz and check them with twine; URL=https://...: the repository's address
	$(PIP) install -q build twine
	rm -rf dist build
	SPECVIZ_URL=$(URL) $(BIN)/python -m build
	$(BIN)/twine check dist/*

clean: ## remove the virtual environment and what was built
	rm -rf $(VENV) build dist *.egg-info

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "specviz needs Python 3.11 or newer; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first: on Linux without a GPU its build for processors, which saves 3.8 GB; otherwise this version, and where that is
# not offered the range in requirements.txt decides.
TORCH := torch==2.13.0
CPU_TORCH := --retries 1 --timeout 20 --extra-index-url https://download.pytorch.org/whl/cpu $(TORCH)+cpu
$(VENV)/run.done: requirements.txt | $(BIN)/python
	$(BIN)/python -c 'import torch' 2>/dev/null || \
		{ test "$$(uname -s)" = Linux && ! test -e /dev/nvidiactl && $(PIP) install $(CPU_TORCH); } || \
		$(PIP) install $(TORCH) || true
	$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/dev.done: requirements-dev.txt requirements-notebook.txt $(VENV)/run.done
	$(PIP) install -r requirements-dev.txt
	$(PIP) install -r requirements-notebook.txt
	@touch $@

# Chromium from the distribution where we may install it (headless where offered), else Playwright's own; fonts for emoji, CJK
# and Arabic.
$(VENV)/browser.done: $(VENV)/dev.done
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; apt-get update -q && \
		apt-get install -q -y --no-install-recommends fonts-noto-core fonts-noto-cjk fonts-noto-color-emoji && \
		{ apt-get install -q -y --no-install-recommends chromium-headless-shell || \
			apt-get install -q -y --no-install-recommends chromium; }; \
	fi; test -x /usr/bin/chromium-headless-shell || test -x /usr/bin/chromium || $(BIN)/python -m playwright install chromium
	@touch $@
