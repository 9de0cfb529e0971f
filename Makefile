# make setup | demo | docs | paper | test | test-matrix | package | bench | lint | typecheck | format | clean
# Needs Python 3.11 or newer and make; `make PYTHON=python3.12 setup` picks another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Modules are compiled once, whatever the environment says: tests start dozens of processes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo docs pictures paper test suite test-slow test-matrix package bench bench-posteriordb lint format typecheck clean

help:
	@sed -n 's/^# //p' Makefile | head -n 2

setup: $(STAMP)
	@:

# pip runs again only when the dependencies or the sources of the compiled kernel have changed.
$(STAMP): pyproject.toml hatch_build.py $(wildcard src/lowerbound/topics/native/*pp)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "lowerbound needs Python 3.11 or newer; found $$($(PYTHON) --version 2>&1)." \
	         "Choose one with: make PYTHON=python3.11 setup"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/paper_mixture.py

# The documentation as a site in output/site: links and anchors checked, every public name documented.
docs: setup
	@$(BIN)/python -c 'import material, mkdocstrings_handlers.python' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean
	@echo "The site is in output/site: open output/site/index.html"

# The pictures of the gallery, by the code of its pages. LME4=FOLDER has sleepstudy.csv and cbpp.csv.
pictures: setup
	$(BIN)/python -m website.running $(if $(LME4),--data $(LME4)) \
	  $(filter-out %/index.md $(if $(LME4),,%/sleepstudy.md %/cbpp.md),$(wildcard docs/gallery/*.md))

# The paper's figures and studies at their full size, in output/paper/.
# make paper IMAGES=FILE for histograms of real images (Figures 4 to 6).
paper: setup
	$(BIN)/python examples/paper_mixture.py --output output/paper
	for study in accuracy starts evidence gibbs frequentist text; do \
	  $(BIN)/python examples/paper/$$study.py || exit 1; done
	$(BIN)/python examples/paper/images.py --rows 10000 --seconds 600 $(if $(IMAGES),--images $(IMAGES))

# All at once: linters and mypy have one process each, and would leave the other cores idle.
test: setup
	@$(MAKE) --no-print-directory --jobs=3 lint typecheck suite

suite: setup
	$(BIN)/python -m pytest -n 2

test-slow: setup
	$(BIN)/python -m pytest -n 2 -m slow

# The fast part on every supported Python, JAX and NumPyro, in environments of its own.
# make test-matrix ARGS='--python 3.13 tests/family'
test-matrix:
	@$(PYTHON) -m tests.matrix $(ARGS)

# sdist and wheel in dist/, the wheel installed and tried on every supported Python there is.
package:
	@$(PYTHON) -m tests.packaging $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

typecheck: setup
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks

# make bench-posteriordb ARGS='--methods lowerbound,nuts --seeds 1'
bench-posteriordb: setup
	@$(BIN)/python -c 'import blackjax' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]' || true
	$(BIN)/python -m benchmarks.posteriordb $(ARGS)

clean:
	rm -rf $(VENV) .matrix build dist output .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
