# make demo   run the main job        make test    run the tests
# make check  style, types, imports   make bench   run every benchmark
# make page   see it in the browser   make docs    build the documentation into site/
# make stress SHARE=0.1  run campaigns of kills, corruptions, full disks and hostile bytes; the whole takes 25 minutes
# make pictures  draw the pictures of the documents (needs chromium)
PYTHON ?= python3
SHARE ?= 1.0
# A third of the time of tests is waiting: two cores have work for three.
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 3 ? 3 : n)))
BIN := .venv/bin
# The pins hold for libraries and for what builds them. pip of 25.3 or later reads them for builds from the second name.
PINS := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt
PIP := $(PINS) $(BIN)/python -m pip --quiet --disable-pip-version-check
WHEEL = $$(echo dist/*.whl)
# With the directories: a file that is deleted changes nothing but the date of its directory.
SOURCES := $(shell find src -not -path '*/__pycache__*')
RUNTIME := .venv/runtime .venv/installed
DEVELOPMENT := .venv/development .venv/installed

# Workers keep what they compiled of the tests, also where a container says that Python should not: it is a tenth of the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo page test stress check bench docs pictures clean

demo: $(RUNTIME)
	@$(BIN)/onoff demo

page: $(RUNTIME)
	@$(BIN)/onoff page

test: $(DEVELOPMENT)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not timing'
	$(BIN)/pytest -m timing tests/client/test_client_timing.py

stress: $(DEVELOPMENT)
	ONOFF_STRESS=$(SHARE) $(BIN)/pytest -m stress -n 2 --dist load

check: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(DEVELOPMENT)
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

docs: $(DEVELOPMENT)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -B -m mkdocs build --strict --quiet
	@echo "the documentation is in site/index.html; to search in it: $(BIN)/python -m http.server -d site"

pictures: $(DEVELOPMENT)
	@$(BIN)/python docs/pictures.py

# Python, and what builds our own wheel.
.venv/python: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("onoff needs Python 3.11 or later: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) install --prefer-binary hatchling
	@touch $@

# The wheel of this tree, built again when a source file changes: what is tested is what would be published.
.venv/installed: .venv/python $(SOURCES) README.md LICENSE
	@rm -rf dist
	@$(PIP) wheel --no-deps --no-build-isolation -w dist .
	@$(PIP) install --no-deps --force-reinstall $(WHEEL)
	@touch $@

# What the wheel needs, at the pinned versions. A dependency without a wheel is built in isolation, with all it asks for:
# what happens to be in .venv, or in pip's cache, decides nothing.
.venv/runtime: pyproject.toml constraints.txt | .venv/installed
	@echo "installing what the demonstration and the page run on into .venv (once)"
	@$(PIP) install --prefer-binary "$(WHEEL)[server]"
	@touch $@

.venv/development: pyproject.toml constraints.txt | .venv/installed
	@echo "installing everything, and the tools of the tests, into .venv (once)"
	@$(PIP) install --prefer-binary "$(WHEEL)[dev]"
	@touch $@ .venv/runtime

clean:
	rm -rf .venv dist site
