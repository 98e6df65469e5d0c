# make demo   run the main job        make test    run the tests
# make check  ruff and mypy --strict  make bench   run every benchmark
# make page   see it in the browser   make docs    build the documentation into site/
# make stress SHARE=0.1  run campaigns of kills, corruptions, full disks and hostile bytes; the whole takes 25 minutes
# make pictures  draw the pictures of the documents (needs chromium)
PYTHON ?= python3
SHARE ?= 1.0
BIN := .venv/bin
# With the directories: a file that is deleted changes nothing but the date of its directory.
SOURCES := $(shell find src -not -path '*/__pycache__*')

.PHONY: demo page test stress check bench docs pictures clean

demo: .venv/installed
	@$(BIN)/onoff demo

page: .venv/installed
	@$(BIN)/onoff page

test: .venv/installed
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

stress: .venv/installed
	ONOFF_STRESS=$(SHARE) $(BIN)/pytest -m stress -n 2 --dist load

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/installed
	@set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

docs: .venv/installed
	@$(BIN)/python -m mkdocs build --strict --quiet

pictures: .venv/installed
	@$(BIN)/python docs/pictures.py

# Dependencies once, at the pinned versions; then the wheel of this tree, built again when a source file changes:
# what is tested is what would be published.
.venv/dependencies: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit("onoff needs Python 3.11 or later: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the pinned dependencies into .venv (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt ".[dev]"
	@touch $@

.venv/installed: .venv/dependencies $(SOURCES) README.md LICENSE
	@rm -rf dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
	@touch $@

clean:
	rm -rf .venv dist site
